package main

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/gpupattern"
)

// small is a driver with one GPU of a few MiB.
type small struct{ memory []byte }

func (s *small) Count() (int, error)                              { return 1, nil }
func (s *small) UUID(int) (string, error)                         { return "GPU-a", nil }
func (s *small) Total(int) (int64, error)                         { return int64(len(s.memory)), nil }
func (s *small) Open(int) (gpupattern.Session, error)             { return &use{small: s}, nil }
func (u *use) Buffer(n int) ([]byte, error)                       { return make([]byte, n), nil }
func (u *use) Zero(gpupattern.Block) error                        { clear(u.memory); return nil }
func (u *use) Close() error                                       { return nil }
func (u *use) Write(_ gpupattern.Block, at int64, b []byte) error { copy(u.memory[at:], b); return nil }
func (u *use) Read(b []byte, _ gpupattern.Block, at int64) (int, error) {
	return copy(b, u.memory[at:]), nil
}

type use struct {
	*small
	taken bool
}

func (u *use) Take(n int64) (gpupattern.Block, error) {
	if u.taken || n != int64(len(u.memory)) {
		return gpupattern.Block{}, gpupattern.ErrNoMemory
	}
	u.taken = true
	return gpupattern.Block{Bytes: n}, nil
}

func said(t *testing.T, d *small, args ...string) string {
	t.Helper()
	cmd := root(func() (gpupattern.Driver, error) { return d, nil })
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	require.NoError(t, cmd.Execute())
	return out.String()
}

func TestWhatItWrites(t *testing.T) {
	t.Parallel()
	d := &small{make([]byte, 4<<20)}
	d.memory[9] = 1
	require.JSONEq(t, `{"version":"dev","mode":"look","gpus":[{"uuid":"GPU-a","bytes_total":4194304,"bytes_checked":4194304,"residue":true,"pattern_pages":0}]}`, said(t, d, "--look", "--json"))
	require.JSONEq(t, `{"version":"dev","mode":"check","gpus":[{"uuid":"GPU-a","bytes_total":4194304,"bytes_checked":4194304,"residue":true,"match":true,"pattern_pages":0}]}`, said(t, d, "--json"))
	require.Contains(t, said(t, d, "--plant"), "something left: not known")
	require.Contains(t, said(t, d, "--look"), "something left: yes, pages of an earlier pattern: 1024")

	absent := root(func() (gpupattern.Driver, error) { return nil, errors.New("no driver") })
	absent.SetArgs([]string{"--json"})
	require.EqualError(t, absent.Execute(), "no driver")
	both := root(func() (gpupattern.Driver, error) { return d, nil })
	both.SetArgs([]string{"--plant", "--look"})
	require.Error(t, both.Execute())
}
