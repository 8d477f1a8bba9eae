//go:build !linux

package scrub

const direct = 0

func mutable(string) error { return nil }

func pages(n int) ([]byte, error) { return make([]byte, n), nil }

func freePages([]byte) {}
