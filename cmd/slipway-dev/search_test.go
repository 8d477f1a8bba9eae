package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/secretscan"
)

func TestCanaries_EachMustBeFoundInItsPlace(t *testing.T) {
	t.Parallel()
	cs := newCanaries()
	s := secretscan.New(cs.secrets(), cs.hashes())
	s.Search("workflow w, event 1", []byte(cs[0].value))
	s.Search(slipwayLog+", line 1", []byte(cs[1].value))
	s.Search("table public.skus, column name, row 1", []byte(cs[2].value+" "+cs[4].value))
	s.Search(printedCopy+", line 1", []byte(cs[3].value))
	found := s.Findings()
	require.Len(t, found, len(cs))

	leak := secretscan.Finding{Place: "table public.nodes, column name, row 1", Kind: kindBMC, Form: "plain"}
	leaks, err := cs.check(append([]secretscan.Finding{leak}, found...))
	require.NoError(t, err)
	require.Equal(t, []secretscan.Finding{leak}, leaks)
	for i, f := range found {
		found[i].Place = "log elsewhere, line 1"
		_, err := cs.check(found)
		require.ErrorContains(t, err, f.Kind)
		found[i] = f
	}
	leaks, err = cs.check(found)
	require.NoError(t, err)
	require.Empty(t, leaks)
}

func TestComplete_NamesTheMissingKind(t *testing.T) {
	t.Parallel()
	var planted []secretscan.Secret
	for _, kind := range requiredKinds() {
		require.ErrorContains(t, complete(planted, nil), kind)
		require.ErrorContains(t, complete(append(planted, secretscan.Secret{Kind: kind}), nil), kind, "an empty one is none")
		planted = append(planted, secretscan.Secret{Kind: kind, Value: "something"})
	}
	require.NoError(t, complete(planted, nil))
	require.NoError(t, complete(planted[1:], []secretscan.Hash{{Kind: requiredKinds()[0]}}))
}

func TestAllLong_OnlyKnownShortSecretsAreLeftOut(t *testing.T) {
	t.Parallel()
	require.NoError(t, allLong(mayBeLeftOut()))
	err := allLong(append(mayBeLeftOut(), secretscan.Secret{Kind: kindBMC, Value: "sim"}))
	require.ErrorContains(t, err, kindBMC)
	require.NotContains(t, err.Error(), "sim")
}
