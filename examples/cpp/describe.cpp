// Detect and describe the keypoints of a photo in C++, without Python: OpenCV detects keypoints and cuts out patches,
// ONNX Runtime describes them.
//
//     doap export doap-128 --to onnx --out doap-128.onnx
//     cmake -B build -D ONNXRUNTIME_ROOT=onnxruntime-linux-x64-VERSION && cmake --build build
//     build/describe photo.jpg doap-128.onnx > described.txt
//
// Install OpenCV with `apt install g++ cmake libopencv-dev`. ONNXRUNTIME_ROOT is ONNX Runtime's unpacked release archive,
// which Debian 12 and Ubuntu 22.04 and 24.04 need. Newer systems have a package instead: `apt install
// libonnxruntime-dev`. OpenCV's own DNN module reads the file from version 4.10 on.
//
// The program prints one line per keypoint, strongest first: x y size angle, then the descriptor as D numbers or D/8
// bytes. Pixel centres are at integers. Angles are in degrees, clockwise.
//
// The steps are those of `doap.extract`, which additionally downscales photos with more than 3200 pixels on a side.
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

constexpr size_t MAX_KEYPOINTS = 2048;
constexpr size_t BATCH_SIZE = 256;  // patches per batch
constexpr double MAGNIFICATION = 6; // side of a frame divided by KeyPoint::size, which is 2σ
constexpr double SIGMA = 0.5;       // assumed blur of a photo in pixels

std::vector<cv::KeyPoint> detect(const cv::Mat &photo) {
    constexpr double contrast = 0.02, edge = 10, sigma = 1.6;
#if CV_VERSION_MAJOR > 4 || (CV_VERSION_MAJOR == 4 && CV_VERSION_MINOR >= 8)
    auto sift = cv::SIFT::create(0, 3, contrast, edge, sigma, true);
#else // Older versions upscale the photo with an offset: keypoints are shifted by a quarter of a pixel.
    auto sift = cv::SIFT::create(0, 3, contrast, edge, sigma);
#endif
    std::vector<cv::KeyPoint> found;
    sift->detect(photo, found);
    auto order = [](const cv::KeyPoint &k) { return std::tuple(-k.response, k.pt.x, k.pt.y, k.size, k.angle); };
    std::sort(found.begin(), found.end(), [&](const auto &a, const auto &b) { return order(a) < order(b); });
    found.resize(std::min(found.size(), MAX_KEYPOINTS));
    return found;
}

// Scale space with two levels per octave: level k has the blur σ = 0.5·2^(k/2) and every 2^⌊k/2⌋-th pixel.
std::vector<cv::Mat> pyramid(const cv::Mat &photo) {
    std::vector<cv::Mat> levels{photo};
    const int count = 2 * static_cast<int>(std::log2(std::max(photo.rows, photo.cols))) + 1;
    for (int level = 1; level < count; ++level) {
        const bool halve = level % 2 == 0;
        const double sigma = halve ? SIGMA * std::sqrt(2.0) : SIGMA;
        cv::Mat blurred;
        cv::GaussianBlur(levels.back(), blurred, cv::Size(), sigma, 0, cv::BORDER_REPLICATE);
        if (halve) {
            // The last sample of an even side lies outside the image.
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

// Sample the S×S patch of a keypoint, as floats in 0…1, from the level whose blur fits the sampling distance.
void cut(const std::vector<cv::Mat> &levels, const cv::KeyPoint &keypoint, double extent, int size, float *patch) {
    const double half_side = MAGNIFICATION * extent * keypoint.size / 2;
    const double step = std::max(half_side * 2 / size, 1.0);
    const int level = std::min<int>(std::nearbyint(2 * std::log2(step)), levels.size() - 1);
    const cv::Mat &image = levels[level];
    const double stride = 1 << (level / 2), angle = keypoint.angle * CV_PI / 180;
    const double cosine = half_side * std::cos(angle), sine = half_side * std::sin(angle);
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
        std::cout << ' ' << +row[column]; // + prints a byte as a number
    std::cout << '\n';
}

int main(int count, char **arguments) try {
    if (count != 3) {
        std::cerr << "usage: describe PHOTO MODEL.onnx\n";
        return 2;
    }
    const cv::Mat photo = cv::imread(arguments[1], cv::IMREAD_GRAYSCALE | cv::IMREAD_IGNORE_ORIENTATION);
    if (photo.empty())
        throw std::runtime_error(std::string(arguments[1]) + ": not an image that OpenCV can read");

    Ort::Env environment(ORT_LOGGING_LEVEL_WARNING, "describe");
    Ort::Session session(environment, arguments[2], Ort::SessionOptions());
    const int64_t size = session.GetInputTypeInfo(0).GetTensorTypeAndShapeInfo().GetShape().at(2);
    Ort::AllocatorWithDefaultOptions allocator;
    const auto stored = session.GetModelMetadata().LookupCustomMetadataMapAllocated("doap.extent", allocator);
    const double extent = stored ? std::stod(stored.get()) : 1;

    const std::vector<cv::KeyPoint> keypoints = detect(photo);
    const std::vector<cv::Mat> levels = pyramid(photo);
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    const char *const inputs[] = {"patches"}, *const outputs[] = {"descriptors"};
    std::cout.precision(9);
    for (size_t first = 0; first < keypoints.size(); first += BATCH_SIZE) {
        const size_t batch = std::min(BATCH_SIZE, keypoints.size() - first);
        const std::vector<int64_t> shape{static_cast<int64_t>(batch), 1, size, size};
        std::vector<float> patches(batch * size * size);
        for (size_t i = 0; i < batch; ++i)
            cut(levels, keypoints[first + i], extent, size, &patches[i * size * size]);
        auto tensor = Ort::Value::CreateTensor<float>(memory, patches.data(), patches.size(), shape.data(), 4);
        const auto described = session.Run(Ort::RunOptions(), inputs, &tensor, 1, outputs, 1);
        const auto info = described[0].GetTensorTypeAndShapeInfo();
        const int64_t width = info.GetShape().at(1);
        for (size_t i = 0; i < batch; ++i)
            if (info.GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8)
                print(keypoints[first + i], described[0].GetTensorData<uint8_t>() + i * width, width);
            else
                print(keypoints[first + i], described[0].GetTensorData<float>() + i * width, width);
    }
} catch (const std::exception &error) {
    std::cerr << "describe: " << error.what() << '\n';
    return 1;
}
