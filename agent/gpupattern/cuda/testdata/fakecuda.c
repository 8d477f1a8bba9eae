// A driver library of one GPU whose memory is this process's: so that the calls,
// their arguments and their errors are tried without a GPU.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TOTAL (24ull << 20)
static uint64_t used;
static int retained, current;
static struct { void *p; uint64_t n; } blocks[64];

int cuInit(unsigned flags) { return flags ? 1 : (getenv("FAKE_NO_DEVICE") ? 100 : 0); }
int cuGetErrorName(int code, const char **name) {
    *name = code == 201 ? "CUDA_ERROR_INVALID_CONTEXT" : "CUDA_ERROR_OTHER";
    return 0;
}
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *d, int i) { if (i) return 101; *d = 7; return 0; }
int cuDeviceGetUuid(unsigned char *u, int d) { if (d != 7) return 101; for (int i = 0; i < 16; i++) u[i] = i + 1; return 0; }
int cuDeviceTotalMem_v2(uint64_t *n, int d) { if (d != 7) return 101; *n = TOTAL; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { if (d != 7) return 101; retained++; *c = &used; return 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { if (d != 7 || !retained) return 201; retained--; return used ? 1 : 0; }
int cuCtxSetCurrent(void *c) { current = c == (void *)&used; return c && !current ? 201 : 0; }
int cuMemHostAlloc(void **p, uint64_t n, unsigned flags) { if (!current || flags != 1) return 201; *p = malloc(n); return 0; }
int cuMemFreeHost(void *p) { free(p); return 0; }
int cuMemAlloc_v2(uint64_t *p, uint64_t n) {
    if (!current) return 201;
    if (used + n > TOTAL) return 2;
    for (int i = 0; i < 64; i++)
        if (!blocks[i].p) {
            blocks[i].p = calloc(1, n), blocks[i].n = n, used += n, *p = (uint64_t)(uintptr_t)blocks[i].p;
            return 0;
        }
    return 2;
}
int cuMemFree_v2(uint64_t p) {
    for (int i = 0; i < 64; i++)
        if (blocks[i].p == (void *)(uintptr_t)p) {
            used -= blocks[i].n, free(blocks[i].p), blocks[i].p = 0;
            return 0;
        }
    return 1;
}
static int inside(uint64_t p, uint64_t n) {
    for (int i = 0; i < 64; i++)
        if (blocks[i].p && p >= (uint64_t)(uintptr_t)blocks[i].p && p + n <= (uint64_t)(uintptr_t)blocks[i].p + blocks[i].n) return 1;
    return 0;
}
int cuMemcpyDtoH_v2(void *dst, uint64_t src, uint64_t n) { if (!current || !inside(src, n)) return 201; memcpy(dst, (void *)(uintptr_t)src, n); return 0; }
int cuMemcpyHtoD_v2(uint64_t dst, const void *src, uint64_t n) { if (!current || !inside(dst, n)) return 201; memcpy((void *)(uintptr_t)dst, src, n); return 0; }
int cuMemsetD32_v2(uint64_t dst, unsigned v, uint64_t n) { if (!current || v || !inside(dst, 4 * n)) return 201; memset((void *)(uintptr_t)dst, 0, 4 * n); return 0; }
int cuCtxSynchronize(void) { return current ? 0 : 201; }
