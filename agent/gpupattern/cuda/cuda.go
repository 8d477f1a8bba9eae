// Package cuda is the CUDA driver library as gpupattern uses it. The library is
// opened when it is needed, so that nothing of NVIDIA's is needed to build.
package cuda

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/slipway-cloud/slipway/agent/gpupattern"
)

// The driver's library, as every NVIDIA driver installs it.
const libraryName = "libcuda.so.1"

// Results of the driver (cuda.h, CUresult).
const (
	success     = 0
	outOfMemory = 2
	noDevice    = 100
)

// hostPortable lets every context use the host memory (CU_MEMHOSTALLOC_PORTABLE).
const hostPortable = 1

// Library is the driver library.
type Library struct {
	init           func(flags uint32) int32
	errorName      func(code int32, name *unsafe.Pointer) int32
	deviceCount    func(n *int32) int32
	deviceGet      func(device *int32, ordinal int32) int32
	deviceUUID     func(uuid *[16]byte, device int32) int32
	deviceTotal    func(bytes *uint64, device int32) int32
	contextRetain  func(context *uintptr, device int32) int32
	contextRelease func(device int32) int32
	contextSet     func(context uintptr) int32
	hostAlloc      func(p *unsafe.Pointer, bytes uint64, flags uint32) int32
	hostFree       func(p unsafe.Pointer) int32
	alloc          func(p *uint64, bytes uint64) int32
	free           func(p uint64) int32
	toHost         func(dst unsafe.Pointer, src, bytes uint64) int32
	toDevice       func(dst uint64, src unsafe.Pointer, bytes uint64) int32
	set            func(dst uint64, value uint32, words uint64) int32
	synchronize    func() int32
}

// Open loads the library and starts the driver.
func Open() (*Library, error) { return open(libraryName) }

func open(name string) (*Library, error) {
	if os.Getenv("CUDA_VISIBLE_DEVICES") != "" {
		return nil, errors.New("CUDA_VISIBLE_DEVICES is set, which hides GPUs; unset it")
	}
	h, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("the CUDA driver library cannot be loaded: %w; install the NVIDIA driver with its compute part", err)
	}
	l := &Library{}
	for symbol, to := range map[string]any{
		"cuInit": &l.init, "cuGetErrorName": &l.errorName, "cuDeviceGetCount": &l.deviceCount, "cuDeviceGet": &l.deviceGet, "cuDeviceGetUuid": &l.deviceUUID,
		"cuDeviceTotalMem_v2": &l.deviceTotal, "cuDevicePrimaryCtxRetain": &l.contextRetain, "cuDevicePrimaryCtxRelease_v2": &l.contextRelease,
		"cuCtxSetCurrent": &l.contextSet, "cuMemHostAlloc": &l.hostAlloc, "cuMemFreeHost": &l.hostFree, "cuMemAlloc_v2": &l.alloc, "cuMemFree_v2": &l.free,
		"cuMemcpyDtoH_v2": &l.toHost, "cuMemcpyHtoD_v2": &l.toDevice, "cuMemsetD32_v2": &l.set, "cuCtxSynchronize": &l.synchronize,
	} {
		at, err := purego.Dlsym(h, symbol)
		if err != nil || at == 0 {
			return nil, fmt.Errorf("%s has no function %s: this NVIDIA driver is too old or something else", name, symbol)
		}
		purego.RegisterFunc(to, at)
	}
	code := l.init(0)
	if code == noDevice {
		return nil, errors.New("the NVIDIA driver finds no GPU")
	}
	return l, l.err("cuInit", code)
}

// err is nil for success.
func (l *Library) err(call string, code int32) error {
	if code == success {
		return nil
	}
	var name unsafe.Pointer
	if l.errorName(code, &name) != success || name == nil {
		return fmt.Errorf("%s: CUDA error %d", call, code)
	}
	return fmt.Errorf("%s: %s (%d)", call, text(name), code)
}

// text is a C string of at most a line.
func text(p unsafe.Pointer) string {
	var out []byte
	for i := range 200 {
		c := *(*byte)(unsafe.Add(p, i))
		if c == 0 {
			break
		}
		out = append(out, c)
	}
	return string(out)
}

// Count implements gpupattern.Driver.
func (l *Library) Count() (int, error) {
	var n int32
	err := l.err("cuDeviceGetCount", l.deviceCount(&n))
	return int(n), err
}

func (l *Library) device(gpu int) (d int32, err error) {
	return d, l.err("cuDeviceGet", l.deviceGet(&d, int32(gpu)))
}

// UUID implements gpupattern.Driver.
func (l *Library) UUID(gpu int) (string, error) {
	d, err := l.device(gpu)
	if err != nil {
		return "", err
	}
	var u [16]byte
	if err := l.err("cuDeviceGetUuid", l.deviceUUID(&u, d)); err != nil {
		return "", err
	}
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]), nil
}

// Total implements gpupattern.Driver.
func (l *Library) Total(gpu int) (int64, error) {
	d, err := l.device(gpu)
	if err != nil {
		return 0, err
	}
	var n uint64
	err = l.err("cuDeviceTotalMem", l.deviceTotal(&n, d))
	return int64(n), err
}

// Open implements gpupattern.Driver.
func (l *Library) Open(gpu int) (gpupattern.Session, error) {
	d, err := l.device(gpu)
	if err != nil {
		return nil, err
	}
	var c uintptr
	if err := l.err("cuDevicePrimaryCtxRetain", l.contextRetain(&c, d)); err != nil {
		return nil, err
	}
	s := &session{l: l, device: d}
	if err := l.err("cuCtxSetCurrent", l.contextSet(c)); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}
