package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/lifecycle/evidence"
)

func (a *app) certificateCommand() *cobra.Command {
	return group("certificate", "Signed certificates of what became of a node's devices", a.certificateList(), a.certificateExport(), a.certificateVerify())
}

// bundleOf asks for everything that was signed about a node.
func (a *app) bundleOf(cmd *cobra.Command, name string) ([]byte, error) {
	id, err := a.nodeOf(cmd.Context(), name)
	if err != nil {
		return nil, err
	}
	r, err := a.api.NodeCertificates(cmd.Context(), id)
	if err != nil {
		return nil, err
	}
	return r.Raw, nil
}

func (a *app) certificateList() *cobra.Command {
	return &cobra.Command{Use: "list NODE", Short: "List the certificates of a node, oldest first", Args: cobra.ExactArgs(1), RunE: does(func(cmd *cobra.Command, args []string) error {
		raw, err := a.bundleOf(cmd, args[0])
		if err != nil {
			return err
		}
		return a.show(raw, func() error {
			var got struct{ Data []evidence.Certificate }
			if err := json.Unmarshal(raw, &got); err != nil {
				return err
			}
			t := a.table("NO", "VERDICT", "ISSUED", "MODE", "DEVICES", "RUN", "")
			for _, c := range got.Data {
				note := ""
				if c.Simulated {
					note = "simulated"
				}
				t.row(c.Sequence, c.Verdict, a.when(c.IssuedAt), orDash(c.Run.Mode), len(c.Devices), c.Run.ID, note)
				for _, f := range c.Failures {
					t.row("", "", "", "", "", "", oneLine(f))
				}
			}
			return t.flush()
		})
	})}
}

func (a *app) certificateExport() *cobra.Command {
	return &cobra.Command{
		Use: "export NODE", Short: "Write all that is needed to verify a node's certificates offline", Args: cobra.ExactArgs(1),
		Example: "  slipway certificate export gpu-7 > gpu-7.json",
		RunE: does(func(cmd *cobra.Command, args []string) error {
			raw, err := a.bundleOf(cmd, args[0])
			if err != nil {
				return err
			}
			var b evidence.Bundle
			if err := json.Unmarshal(raw, &b); err != nil {
				return err
			}
			text, err := json.MarshalIndent(b, "", "  ")
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.Out, escapeJSON(string(text)))
			return err
		}),
	}
}

func (a *app) certificateVerify() *cobra.Command {
	var keys []string
	cmd := &cobra.Command{
		Use: "verify FILE", Short: "Check a node's certificates offline: signatures, links, and that none is missing", Args: cobra.ExactArgs(1),
		Long: "Check what `slipway certificate export` wrote, without a server: every signature, every link of the chain, and its signed end.\n" +
			"FILE may be - for standard input. Only keys with the fingerprints of --key are trusted. Without --key the file is checked by its own keys, which\n" +
			"anybody could have made: that shows only whether it is consistent. Their fingerprints are named, so that they can be compared with one that came\n" +
			"another way.\n\nExit code 0 when the chain is whole and genuine and its newest certificate says clean; 8 when it is whole and genuine, and the newest\n" +
			"verdict is another or there is no certificate; 9 when it is consistent, and no trusted key was named; 1 when it is not whole or\n" +
			"not genuine; 2 when FILE cannot be read as an export.",
		Example: "  slipway certificate verify gpu-7.json --key 3f9a...",
	}
	cmd.Flags().StringSliceVar(&keys, "key", nil, "fingerprint (SHA-256, hex) of a key to trust; may be repeated")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("key") && len(keys) == 0 {
			return fail(ExitUsage, "--key is empty: name the fingerprint to trust, or leave --key out to check only whether the file is consistent")
		}
		raw, err := a.readFile(args[0])
		if err != nil {
			return err
		}
		var b evidence.Bundle
		if err := json.Unmarshal(raw, &b); err != nil || b.NodeID == "" {
			return fail(ExitUsage, "%s is not a whole export of certificates, perhaps cut short; write it again with: slipway certificate export NODE > FILE", args[0])
		}
		trusted, err := trustedKeys(b.Keys, keys)
		if err != nil {
			return err
		}
		return a.verdict(b, trusted, len(keys) > 0)
	})
	return cmd
}

const biggestBundle = 256 << 20

func (a *app) readFile(name string) ([]byte, error) {
	in := a.In
	if name != "-" {
		f, err := openNamed(name)
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // only read
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, biggestBundle+1))
	if err == nil && len(raw) > biggestBundle {
		err = fail(ExitUsage, "%s is bigger than %d MiB", name, biggestBundle>>20)
	}
	return raw, err
}

func fingerprint(k evidence.Key) string {
	sum := sha256.Sum256(k.Public)
	return hex.EncodeToString(sum[:])
}

// trustedKeys are the keys of the file that have one of the fingerprints.
func trustedKeys(there []evidence.Key, want []string) ([]evidence.Key, error) {
	if len(want) == 0 {
		return there, nil
	}
	var out []evidence.Key
	for _, w := range want {
		w = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(w), ":", ""))
		if raw, err := hex.DecodeString(w); err != nil || len(raw) != sha256.Size {
			return nil, fail(ExitUsage, "--key %q is not a SHA-256 fingerprint of 64 hex digits", w)
		}
		for _, k := range there {
			if fingerprint(k) == w {
				out = append(out, k)
			}
		}
	}
	return out, nil
}

// verdict prints what the certificates say. named says that the user has named the trusted keys, so
// that nothing else vouches for them.
func (a *app) verdict(b evidence.Bundle, trusted []evidence.Key, named bool) error {
	certs, problems := evidence.Verify(b, trusted)
	for _, c := range certs {
		note := ""
		if c.Simulated {
			note = " (simulated: it proves nothing about hardware)"
		}
		_, _ = fmt.Fprintf(a.Out, "%d  %s  %s  %s, %d devices%s\n", c.Sequence, c.IssuedAt.Format("2006-01-02 15:04:05Z"), c.Verdict, oneLine(c.Run.ID), len(c.Devices), note)
		for _, f := range c.Failures {
			_, _ = fmt.Fprintf(a.Out, "     %s\n", oneLine(f))
		}
	}
	what := map[bool]string{true: "trusted key", false: "key of the file"}[named]
	for _, k := range trusted {
		_, _ = fmt.Fprintf(a.Out, "%s %s  %s\n", what, oneLine(k.ID), fingerprint(k))
	}
	if len(problems) > 0 {
		var says []string
		for _, p := range problems {
			where := "the whole"
			if p.Sequence > 0 {
				where = fmt.Sprintf("certificate %d", p.Sequence)
			}
			says = append(says, where+": "+oneLine(p.Message))
		}
		return fail(ExitError, "NOT genuine or not whole:\n  %s", strings.Join(says, "\n  "))
	}
	if !named {
		return fail(ExitNotTrusted, "consistent, not authenticated: %d certificates of node %s; nothing says whose keys these are. Name the fingerprint that you trust with --key",
			len(certs), oneLine(b.NodeID))
	}
	_, _ = fmt.Fprintf(a.Out, "genuine and whole: %d certificates of node %s\n", len(certs), oneLine(b.NodeID))
	switch {
	case len(certs) == 0:
		return fail(ExitNotClean, "nothing was ever certified of this node")
	case certs[len(certs)-1].Verdict != evidence.VerdictClean:
		return fail(ExitNotClean, "the newest certificate does not prove the node clean: %s", certs[len(certs)-1].Verdict)
	}
	return nil
}
