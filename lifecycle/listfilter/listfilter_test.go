package listfilter_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/listfilter"
)

func TestParse(t *testing.T) {
	t.Parallel()
	term := func(field, value string) listfilter.Term { return listfilter.Term{Field: field, Value: value} }
	not := func(field, value string) listfilter.Term {
		return listfilter.Term{Field: field, Value: value, Negated: true}
	}
	for text, want := range map[string]listfilter.Filter{
		"":                                nil,
		"  ":                              nil,
		"phase=IN_SERVICE":                {term("phase", "IN_SERVICE")},
		" phase!=RETIRED ":                {not("phase", "RETIRED")},
		`provider="dc-1"`:                 {term("provider", "dc-1")},
		`provider="dc 1 \"a\" \\ b"`:      {term("provider", `dc 1 "a" \ b`)},
		`provider=""`:                     {term("provider", "")},
		`labels.env=prod`:                 {term("labels.env", "prod")},
		`labels.example.com/role!=worker`: {not("labels.example.com/role", "worker")},
		"InCustomerCluster=true":          {term("InCustomerCluster", "true")},
		"phase=READY AND Drained=false  AND  provider=AND": {term("phase", "READY"), term("Drained", "false"), term("provider", "AND")},
		`provider="a AND phase=READY"`:                     {term("provider", "a AND phase=READY")},
		"phase = IN_SERVICE":                               {term("phase", "IN_SERVICE")},
		"phase\t!= RETIRED\nAND provider  =\"dc 1\"":       {not("phase", "RETIRED"), term("provider", "dc 1")},
		"machine_id=m-1":                                   {term("machine_id", "m-1")},
	} {
		got, err := listfilter.Parse(text, listfilter.MachineFields())
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := listfilter.Parse(got.String(), listfilter.MachineFields())
		require.NoError(t, err, got.String())
		require.Equal(t, got.String(), again.String())
	}
	got, err := listfilter.Parse("machine_id=m-1 AND type=REPAVE", listfilter.RunFields())
	require.NoError(t, err)
	require.Len(t, got, 2)
}

func TestParse_Refuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"phase":                     "not field=value",
		"=READY":                    "not field=value",
		"phase ! = READY":           "not field=value",
		"phase READY":               "not field=value",
		"phase=":                    "no value",
		"phase==READY":              "is one of FACTORY_READY",
		"phase>READY":               "not field=value",
		"phase=BROKEN":              "phase is one of FACTORY_READY, READY",
		"phase=in_service":          "phase is one of",
		"Drained=yes":               "Drained is one of true, false",
		"run_id=m-1":                "the fields are machine_id, phase, effective_state, provider, customer_id, target_cluster_ref, labels.NAME, Reachable",
		"labels.=x":                 "names no field",
		"labels.a b=x":              "not field=value",
		"status=x":                  "names no field",
		"phase=READY phase=RMA":     "write AND",
		"phase=READY OR phase=RMA":  "write AND",
		"phase=READY and phase=RMA": "write AND",
		"phase=READY ANDphase=RMA":  "write AND",
		"phase=READY AND":           "after AND",
		"AND phase=READY":           "not field=value",
		`provider="a`:               "no closing quote",
		`provider="a"b`:             "write a space",
		`provider="a\n"`:            "backslash",
		"provider=\"a\nb\"":         "control character",
		"provider=\"a\xff\"":        "not UTF-8",
		"provider=a;drop":           "write a space",
		"provider='a'":              "write a space",
		strings.Repeat("x", 2049):   "longer than 2048",
		strings.Repeat("provider=a AND ", 16) + "provider=a": "more than 16 terms",
		"provider=" + strings.Repeat("x", 257):               "longer than 256",
		"labels." + strings.Repeat("x", 129) + "=a":          "names no field",
	} {
		_, err := listfilter.Parse(text, listfilter.MachineFields())
		var wrong *listfilter.Error
		require.True(t, errors.As(err, &wrong), "%s: %v", text, err)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "BROKEN")
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	run := map[string]string{"phase": "RUNNING", "machine_id": "m-1", "type": "REPAVE"}
	for text, want := range map[string]bool{
		"": true, "phase=RUNNING": true, "phase=FAILED": false, "phase!=FAILED": true, "phase!=RUNNING": false,
		"phase=RUNNING AND machine_id=m-1": true, "phase=RUNNING AND machine_id=m-2": false, `plan_id=""`: true, "plan_id!=p": true,
		"phase=RUNNING AND phase=FAILED": false,
	} {
		f, err := listfilter.Parse(text, listfilter.RunFields())
		require.NoError(t, err, text)
		require.Equal(t, want, f.Match(func(field string) string { return run[field] }), text)
	}
	a, err := listfilter.Parse("phase=RUNNING AND type=RMA", listfilter.RunFields())
	require.NoError(t, err)
	b, err := listfilter.Parse(` type="RMA"  AND phase="RUNNING"`, listfilter.RunFields())
	require.NoError(t, err)
	require.Equal(t, a.String(), b.String())
	name, is := listfilter.Term{Field: "labels.env"}.Label()
	require.True(t, is)
	require.Equal(t, "env", name)
}

// Whatever is read keeps its meaning in its one spelling, and nothing else than the fields is
// named.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"phase=READY", `provider="a \" AND b" AND Drained!=true`, `labels.x="\\"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := listfilter.Parse(text, listfilter.MachineFields())
		if err != nil {
			return
		}
		again, err := listfilter.Parse(filter.String(), listfilter.MachineFields())
		require.NoError(t, err, filter.String())
		require.ElementsMatch(t, filter, again)
	})
}
