package main

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestParse_Seed: every number is a seed, 0 too. Without the flag the time is the seed.
func TestParse_Seed(t *testing.T) {
	t.Parallel()
	f, err := parse([]string{"--seed", "0", "--for", "1s", "--limit", "15m"}, io.Discard)
	require.NoError(t, err)
	require.Zero(t, f.seed)
	require.Equal(t, 15*time.Minute, f.limit)
	f, err = parse(nil, io.Discard)
	require.NoError(t, err)
	require.InDelta(t, time.Now().Unix(), f.seed, 60)
	_, err = parse([]string{"--seed", "-1"}, io.Discard)
	require.Error(t, err)
}
