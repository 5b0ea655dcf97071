// The part of a CUDA device that torch asks for from C++: one stream for each of eight devices.
// Tensors on it are Python objects (tests/cuda/disguise.py), so nothing here holds memory.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

namespace {

constexpr DeviceIndex kDevices = 8;
thread_local DeviceIndex chosen = 0;

Stream only_stream(Device device) {
  return Stream(Stream::DEFAULT, Device(DeviceType::CUDA, device.has_index() ? device.index() : chosen));
}

struct DisguisedGuard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device getDevice() const override { return Device(DeviceType::CUDA, chosen); }
  DeviceIndex deviceCount() const noexcept override { return kDevices; }
  void setDevice(Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.has_index()) chosen = device.index();
  }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    setDevice(device);
    return before;
  }
  Stream getStream(Device device) const override { return only_stream(device); }
  Stream getDefaultStream(Device device) const override { return only_stream(device); }
  Stream exchangeStream(Stream stream) const override { return stream; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
};

C10_REGISTER_GUARD_IMPL(CUDA, DisguisedGuard);

}  // namespace

namespace at {

// torch looks hooks up by this name.
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return kDevices; }
  DeviceIndex getCurrentDevice() const override { return chosen; }
  DeviceIndex current_device() const override { return chosen; }
};

REGISTER_CUDA_HOOKS(CUDAHooks);

}  // namespace at
