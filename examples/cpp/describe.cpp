// Describe the keypoints of a photo in C++, without Python: OpenCV finds and cuts them, ONNX Runtime describes them.
//
//     doap export doap-128 --to onnx --out doap-128.onnx
//     g++ -O2 -std=c++17 describe.cpp -o describe -I/usr/include/onnxruntime -lonnxruntime
//         $(pkg-config --cflags opencv4) -lopencv_core -lopencv_imgproc -lopencv_imgcodecs -lopencv_features2d
//     ./describe photo.jpg doap-128.onnx > described.txt
//
// Both libraries: `apt install libopencv-dev libonnxruntime-dev` (Debian 13, Ubuntu 25.04), or ONNX Runtime's release
// archive. One line is printed for each keypoint, the strongest first: x y size angle, then the descriptor, D numbers or
// D/8 bytes. Pixel centres are at integers, angles in degrees, clockwise.
//
// This is what `doap.extract` does, step by step, except that doap makes a photo of more than 3200 pixels smaller first.
#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <opencv2/core.hpp>
#include <opencv2/features2d.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <string>
#include <tuple>
#include <vector>

constexpr size_t MOST = 2048;       // keypoints to keep
constexpr size_t AT_ONCE = 256;     // patches to describe at once
constexpr double MAGNIFICATION = 6; // side of a frame over KeyPoint::size, which is 2σ
constexpr double SIGMA = 0.5;       // blur of a photograph, in its pixels

std::vector<cv::KeyPoint> detect(const cv::Mat &photo) {
    constexpr double contrast = 0.02, edge = 10, sigma = 1.6;
#if CV_VERSION_MAJOR > 4 || (CV_VERSION_MAJOR == 4 && CV_VERSION_MINOR >= 8)
    auto sift = cv::SIFT::create(0, 3, contrast, edge, sigma, true);
#else // It cannot enlarge the photo around its middle: keypoints lie a quarter of a pixel aside.
    auto sift = cv::SIFT::create(0, 3, contrast, edge, sigma);
#endif
    std::vector<cv::KeyPoint> found;
    sift->detect(photo, found);
    auto order = [](const cv::KeyPoint &k) { return std::tuple(-k.response, k.pt.x, k.pt.y, k.size, k.angle); };
    std::sort(found.begin(), found.end(), [&](const auto &a, const auto &b) { return order(a) < order(b); });
    found.resize(std::min(found.size(), MOST));
    return found;
}

// Ever coarser copies, two to the octave: level k is blurred to σ = 0.5·2^(k/2) and has every 2^⌊k/2⌋-th pixel.
std::vector<cv::Mat> pyramid(const cv::Mat &photo) {
    std::vector<cv::Mat> levels{photo};
    const int count = 2 * static_cast<int>(std::log2(std::max(photo.rows, photo.cols))) + 1;
    for (int level = 1; level < count; ++level) {
        const bool halve = level % 2 == 0;
        const double sigma = halve ? SIGMA * std::sqrt(2.0) : SIGMA;
        cv::Mat blurred;
        cv::GaussianBlur(levels.back(), blurred, cv::Size(), sigma, 0, cv::BORDER_REPLICATE);
        if (halve) {
            // The last sample of an even side stands beyond it.
            cv::Mat half(blurred.rows / 2 + 1, blurred.cols / 2 + 1, CV_8U);
            for (int y = 0; y < half.rows; ++y)
                for (int x = 0; x < half.cols; ++x)
                    half.at<uint8_t>(y, x) = blurred.at<uint8_t>(std::min(2 * y, blurred.rows - 1),
                                                                 std::min(2 * x, blurred.cols - 1));
            blurred = half;
        }
        levels.push_back(blurred);
    }
    return levels;
}

// The S×S patch of a keypoint as floats in 0…1, from the level whose blur suits the distance of its samples.
void cut(const std::vector<cv::Mat> &levels, const cv::KeyPoint &keypoint, double extent, int size, float *patch) {
    const double half_side = MAGNIFICATION * extent * keypoint.size / 2;
    const double step = std::max(half_side * 2 / size, 1.0);
    const int level = std::min<int>(std::nearbyint(2 * std::log2(step)), levels.size() - 1);
    const cv::Mat &image = levels[level];
    const double stride = 1 << (level / 2), turn = keypoint.angle * CV_PI / 180;
    const double cosine = half_side * std::cos(turn), sine = half_side * std::sin(turn);
    cv::Mat map_x(size, size, CV_32F), map_y(size, size, CV_32F), sampled;
    for (int row = 0; row < size; ++row)
        for (int column = 0; column < size; ++column) {
            const double u = (2 * column + 1.0) / size - 1, v = (2 * row + 1.0) / size - 1;
            const double x = (cosine * u - sine * v + keypoint.pt.x) / stride;
            const double y = (sine * u + cosine * v + keypoint.pt.y) / stride;
            map_x.at<float>(row, column) = std::clamp(x, 0.0, image.cols - 1.0);
            map_y.at<float>(row, column) = std::clamp(y, 0.0, image.rows - 1.0);
        }
    cv::remap(image, sampled, map_x, map_y, cv::INTER_LINEAR, cv::BORDER_REPLICATE);
    std::transform(sampled.begin<uint8_t>(), sampled.end<uint8_t>(), patch, [](uint8_t grey) { return grey / 255.0f; });
}

template <typename Number> void print(const cv::KeyPoint &keypoint, const Number *row, int64_t width) {
    std::cout << keypoint.pt.x << ' ' << keypoint.pt.y << ' ' << keypoint.size << ' ' << keypoint.angle;
    for (int64_t column = 0; column < width; ++column)
        std::cout << ' ' << +row[column]; // + makes a number of a byte
    std::cout << '\n';
}

int main(int count, char **arguments) try {
    if (count != 3) {
        std::cerr << "usage: describe PHOTO MODEL.onnx\n";
        return 2;
    }
    const cv::Mat photo = cv::imread(arguments[1], cv::IMREAD_GRAYSCALE);
    if (photo.empty())
        throw std::runtime_error(std::string(arguments[1]) + ": expected a photo, got none that OpenCV can read");

    Ort::Env environment(ORT_LOGGING_LEVEL_WARNING, "describe");
    Ort::Session session(environment, arguments[2], Ort::SessionOptions());
    const int64_t size = session.GetInputTypeInfo(0).GetTensorTypeAndShapeInfo().GetShape().at(2);
    Ort::AllocatorWithDefaultOptions allocator;
    const auto told = session.GetModelMetadata().LookupCustomMetadataMapAllocated("doap.extent", allocator);
    const double extent = told ? std::stod(told.get()) : 1;

    const std::vector<cv::KeyPoint> keypoints = detect(photo);
    const std::vector<cv::Mat> levels = pyramid(photo);
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    const char *const inputs[] = {"patches"}, *const outputs[] = {"descriptors"};
    std::cout.precision(9);
    for (size_t first = 0; first < keypoints.size(); first += AT_ONCE) {
        const size_t some = std::min(AT_ONCE, keypoints.size() - first);
        const std::vector<int64_t> shape{static_cast<int64_t>(some), 1, size, size};
        std::vector<float> patches(some * size * size);
        for (size_t i = 0; i < some; ++i)
            cut(levels, keypoints[first + i], extent, size, &patches[i * size * size]);
        auto tensor = Ort::Value::CreateTensor<float>(memory, patches.data(), patches.size(), shape.data(), 4);
        const auto described = session.Run(Ort::RunOptions(), inputs, &tensor, 1, outputs, 1);
        const auto about = described[0].GetTensorTypeAndShapeInfo();
        const int64_t width = about.GetShape().at(1);
        for (size_t i = 0; i < some; ++i)
            if (about.GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8)
                print(keypoints[first + i], described[0].GetTensorData<uint8_t>() + i * width, width);
            else
                print(keypoints[first + i], described[0].GetTensorData<float>() + i * width, width);
    }
} catch (const std::exception &error) {
    std::cerr << "describe: " << error.what() << '\n';
    return 1;
}
