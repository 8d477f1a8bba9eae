package gpupattern

import (
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// bench is a driver whose GPUs are memory of this process. Memory that is given
// back keeps its content, as on a GPU whose driver clears nothing.
type bench struct{ gpus []*board }

type board struct {
	memory []byte
	reads  int

	stuck    map[int64]byte // bits that read as one wherever they are set here
	zeroBits map[int64]byte // bits that read as zero
	alias    int64          // addresses from here on are those from 0
	most     int            // bytes of one copy; 0 is all
	clears   bool           // the driver clears what it gives
	keeps    bool           // zeros do not arrive
	held     int64          // bytes that are never free
	failAt   string         // the call that fails
	nothing  bool           // reads nothing and says that all is well
	sessions int
}

var errBroken = errors.New("CUDA_ERROR_ECC_UNCORRECTABLE")

func (b *bench) Count() (int, error) { return len(b.gpus), nil }
func (b *bench) UUID(i int) (string, error) {
	return "GPU-" + strconv.Itoa(i), b.gpus[i].fail("uuid")
}
func (b *bench) Total(i int) (int64, error) {
	return int64(len(b.gpus[i].memory)), b.gpus[i].fail("total")
}
func (b *bench) Open(i int) (Session, error) {
	g := b.gpus[i]
	g.sessions++
	return &use{board: g}, g.fail("open")
}

func (g *board) fail(call string) error {
	if g.failAt == call {
		return errBroken
	}
	return nil
}

type use struct {
	*board
	next int64
}

func (u *use) Buffer(n int) ([]byte, error) { return make([]byte, n), u.fail("buffer") }

func (u *use) Take(n int64) (Block, error) {
	if err := u.fail("take"); err != nil {
		return Block{}, err
	}
	if u.next+n > int64(len(u.memory))-u.held {
		return Block{}, ErrNoMemory
	}
	b := Block{Address: uint64(u.next), Bytes: n}
	u.next += n
	if u.clears {
		clear(u.memory[b.Address : int64(b.Address)+n])
	}
	return b, nil
}

// place is where an address leads.
func (u *use) place(at int64) int64 {
	if u.alias > 0 && at >= u.alias {
		return at - u.alias
	}
	return at
}

func (u *use) Read(dst []byte, b Block, at int64) (int, error) {
	u.reads++
	if err := u.fail("read"); err != nil {
		return 0, err
	}
	if u.nothing {
		return 0, nil
	}
	if u.most > 0 && len(dst) > u.most {
		dst = dst[:u.most]
	}
	from := int64(b.Address) + at
	n := copy(dst, u.memory[u.place(from):])
	for i, bits := range u.stuck {
		if i >= from && i < from+int64(n) {
			dst[i-from] |= bits
		}
	}
	for i, bits := range u.zeroBits {
		if i >= from && i < from+int64(n) {
			dst[i-from] &^= bits
		}
	}
	return n, nil
}

func (u *use) Write(b Block, at int64, src []byte) error {
	copy(u.memory[u.place(int64(b.Address)+at):], src)
	return u.fail("write")
}

func (u *use) Zero(b Block) error {
	if !u.keeps {
		clear(u.memory[b.Address : int64(b.Address)+b.Bytes])
	}
	return u.fail("zero")
}

func (u *use) Close() error { u.sessions--; return u.fail("close") }

const mib = 1 << 20

func gpu(size int) *board { return &board{memory: make([]byte, size)} }

func check(t *testing.T, b *board, m Mode) GPU {
	t.Helper()
	r, err := run(&bench{[]*board{b}}, m, "v1", mib)
	require.NoError(t, err)
	require.Equal(t, "v1", r.Version)
	require.Len(t, r.GPUs, 1)
	require.Zero(t, b.sessions, "all is given back")
	return r.GPUs[0]
}

func TestACleanGPU(t *testing.T) {
	t.Parallel()
	b := gpu(37 * mib) // no power of two, and more than a chunk
	g := check(t, b, Check)
	require.Empty(t, g.Error)
	require.Equal(t, "GPU-0", g.UUID)
	require.EqualValues(t, 37*mib, g.Total)
	require.EqualValues(t, 36*mib, g.Checked, "all but less than one smallest piece")
	require.False(t, *g.Residue)
	require.True(t, *g.Match)
	require.Equal(t, make([]byte, 37*mib), b.memory, "it leaves zeros")
}

func TestWhatIsLeftIsFound(t *testing.T) {
	t.Parallel()
	for _, at := range []int{0, 4095, 20 * mib, 36*mib - 1} {
		b := gpu(36 * mib)
		b.memory[at] = 1
		g := check(t, b, Check)
		require.True(t, *g.Residue, "%d", at)
		require.Zero(t, g.PatternPages)
		require.True(t, *g.Match, "and overwritten all the same")
		require.False(t, *check(t, b, Look).Residue)
	}
}

// The canary: what an earlier run planted is found where nothing cleared it.
func TestAPlantedPatternIsFoundUntilItIsCleared(t *testing.T) {
	t.Parallel()
	b := gpu(8 * mib)
	g := check(t, b, Plant)
	require.True(t, *g.Match)
	require.Nil(t, g.Residue, "it does not look")
	before := string(b.memory)
	g = check(t, b, Look)
	require.True(t, *g.Residue)
	require.EqualValues(t, 8*mib/page, g.PatternPages)
	require.Nil(t, g.Match)
	require.Equal(t, before, string(b.memory), "looking changes nothing")
	b.clears = true // as a reset does
	g = check(t, b, Look)
	require.False(t, *g.Residue)
	require.Zero(t, g.PatternPages)
}

func TestMemoryThatDoesNotHoldWhatWasWritten(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*board){
		"a bit that is always one":     func(b *board) { b.stuck = map[int64]byte{5*mib + 77: 8} },
		"a bit that is always zero":    func(b *board) { b.zeroBits = map[int64]byte{5*mib + 77: 8} },
		"one address for two places":   func(b *board) { b.alias = 8 * mib },
		"a bit that is one at the end": func(b *board) { b.stuck = map[int64]byte{12*mib - 1: 1} },
	} {
		b := gpu(12 * mib) // two pieces
		spoil(b)
		g := check(t, b, Check)
		require.False(t, g.Error == "" && *g.Match, name)
	}
}

func TestShortReadsAreReadOn(t *testing.T) {
	t.Parallel()
	b := gpu(8 * mib)
	b.most = 1000003
	b.memory[7*mib] = 1
	g := check(t, b, Check)
	require.Empty(t, g.Error)
	require.True(t, *g.Residue, "also behind the first read")
	require.True(t, *g.Match)
	require.EqualValues(t, 8*mib, g.Checked)
	require.Greater(t, b.reads, 20)

	b.nothing = true
	g = check(t, b, Check)
	require.Contains(t, g.Error, "reads nothing")
	require.Nil(t, g.Match)
	require.Zero(t, g.Checked)
}

func TestMemoryInUseIsNotCounted(t *testing.T) {
	t.Parallel()
	b := gpu(16 * mib)
	b.held = 6 * mib
	g := check(t, b, Check)
	require.EqualValues(t, 10*mib, g.Checked, "the agent compares it with the whole")
	b.held = 16 * mib
	require.Contains(t, check(t, b, Check).Error, "no memory is free")
}

func TestOneGPUThatFailsDoesNotHideTheOthers(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"uuid", "total", "open", "buffer", "take", "read", "write", "zero", "close"} {
		bad := gpu(4 * mib)
		bad.failAt = call
		r, err := run(&bench{[]*board{gpu(4 * mib), bad, gpu(4 * mib)}}, Check, "v1", mib)
		require.NoError(t, err)
		require.Contains(t, r.GPUs[1].Error, "ECC_UNCORRECTABLE", call)
		require.Nil(t, r.GPUs[1].Match, call)
		for _, i := range []int{0, 2} {
			require.Empty(t, r.GPUs[i].Error, call)
			require.True(t, *r.GPUs[i].Match, call)
		}
	}
	keeps := gpu(4 * mib)
	keeps.keeps = true
	require.Contains(t, check(t, keeps, Check).Error, "zeros")
	_, err := Run(&bench{}, Check, "v1")
	require.ErrorContains(t, err, "no GPU")
	_, err = Run(&bench{[]*board{gpu(mib)}}, "wipe", "v1")
	require.ErrorContains(t, err, `no mode "wipe"`)
}
