package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
)

// The node that the demo lends to customers has a SKU of its own, so that the second one gets the
// same.
const (
	lentNode = 3
	lentSKU  = "h100x8-dedicated"
)

// The file that the first customer leaves on the node.
const (
	leftFile = "model.txt"
	leftText = "the-weights-of-acme"
)

// lendNode gives a node to a customer, who logs in and leaves a file; takes it back; and gives it
// to a customer of another company, who finds nothing of the first. It returns the allocation of
// the second.
func (o *operator) lendNode(ctx context.Context, out io.Writer, w *watched) (string, error) {
	fmt.Fprintf(out, "\nTwo customers have %s one after the other. Both are root on it.\n", w.host)
	if err := o.offerNode(ctx, out); err != nil {
		return "", err
	}
	bob, err := o.bob.withToken(ctx, out)
	if err != nil {
		return "", err
	}
	first, err := bob.allocate(ctx, out, "--name", "train", "--tag", "team=research")
	if err != nil {
		return "", err
	}
	if err := bob.show(ctx, out, "allocation", "show", first, "--watch"); err != nil {
		return "", err
	}
	if err := bob.connect(ctx, out, first, w.host, "hostname; sudo id -un; nvidia-smi -L; echo "+leftText+" > "+leftFile+"; ls"); err != nil {
		return "", err
	}
	fmt.Fprintln(out, "\nCarol asks for the same, and waits for it:")
	second, err := o.carol.allocate(ctx, out, "--name", "inference", "--wait", "10m")
	if err != nil {
		return "", err
	}
	if err := o.carol.show(ctx, out, "allocation", "list"); err != nil {
		return "", err
	}
	fmt.Fprintln(out, "\nBob gives the node back. He was root, so the machine is switched off, erased and installed again, and proven clean before Carol gets it.")
	if err := bob.show(ctx, out, "allocation", "release", first, "--watch"); err != nil {
		return "", err
	}
	if err := o.carol.show(ctx, out, "allocation", "show", second, "--watch"); err != nil {
		return "", err
	}
	if err := o.findsNothing(ctx, out, first, second, w.host); err != nil {
		return "", err
	}
	return second, o.show(ctx, out, "allocation", "list-all", "--status", "active", "--status", "release_failed")
}

// offerNode offers the SKU of the node at a price, and lets the projects of both customers have
// one.
func (o *operator) offerNode(ctx context.Context, out io.Writer) error {
	var err error
	if o.carol.project, err = o.makeProject(ctx, out, "globex", "inference", o.carol); err != nil {
		return err
	}
	key, err := o.carol.writeKey()
	if err != nil {
		return err
	}
	if err := o.carol.show(ctx, out, "key", "create", o.carol.project, "laptop", key); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"catalogue", "create", lentSKU, "--profile", o.prof, "--title", "Eight H100"},
		{"quota", "set", o.bob.project, "total", "1", "--reason", "the demo"}, {"quota", "set", o.carol.project, "total", "1", "--reason", "the demo"},
	} {
		if err := o.show(ctx, out, args...); err != nil {
			return err
		}
	}
	if err := o.setPrice(ctx, out); err != nil {
		return err
	}
	if err := o.bob.showPrice(ctx, out); err != nil {
		return err
	}
	return o.topUp(ctx, out)
}

// showPrice shows what a node costs before it is requested.
func (c *customer) showPrice(ctx context.Context, out io.Writer) error {
	if err := c.show(ctx, out, "catalogue", "list", "--project", c.project); err != nil {
		return err
	}
	return c.show(ctx, out, "allocation", "create", lentSKU, "--project", c.project, "--dry-run")
}

// withToken makes a token of the customer's project for a program, and returns that program.
func (c *customer) withToken(ctx context.Context, out io.Writer) (*customer, error) {
	args := []string{"project-token", "create", c.project, "ci"}
	fmt.Fprintf(out, "\n%s$ slipway %s\n", c.Name, strings.Join(args, " "))
	var made struct{ Token string }
	if err := read(ctx, c.operator, c.home, &made, args...); err != nil {
		return nil, err
	}
	c.customerTokens = append(c.customerTokens, made.Token)
	program := *c
	program.Name, program.home, program.token = c.Name+"-ci", filepath.Join(c.stack.Dir, "cli-"+c.Name+"-ci"), made.Token
	return &program, c.login(ctx, program.home, program.token)
}

// allocate asks for a node of the offered SKU and returns the allocation's id.
func (c *customer) allocate(ctx context.Context, out io.Writer, more ...string) (string, error) {
	args := append([]string{"allocation", "create", lentSKU, "--project", c.project}, more...)
	fmt.Fprintf(out, "\n%s$ slipway %s\n", c.Name, strings.Join(args, " "))
	var made struct{ ID, Status string }
	if err := read(ctx, c.operator, c.home, &made, args...); err != nil {
		return "", err
	}
	fmt.Fprintf(out, "%s  %s\n", made.ID, made.Status)
	return made.ID, nil
}

// connect runs a command on the node of an allocation with the OpenSSH client, and fails unless the
// node says that it has this hostname.
func (c *customer) connect(ctx context.Context, out io.Writer, id, host, command string) error {
	said, err := c.ssh(ctx, out, id, c.key, command)
	if err != nil {
		return err
	}
	if name, _, _ := strings.Cut(said, "\n"); name != host {
		return fmt.Errorf("%s is logged in to %q, and should be on %s", c.Name, name, host)
	}
	return nil
}

// ssh runs a command on the node of an allocation with a private key, and returns what it says.
func (c *customer) ssh(ctx context.Context, out io.Writer, id, key, command string) (string, error) {
	fmt.Fprintf(out, "\n%s$ slipway ssh %s -i %s -- '%s'\n", c.Name, id, key, command)
	said, err := c.commandOf(ctx, c.home, "ssh", id, "-i", key, "--", command).CombinedOutput()
	_, _ = out.Write(said)
	if err != nil {
		err = fmt.Errorf("%s: slipway ssh: %w: %s", c.Name, err, said)
	}
	return string(said), err
}

// refusedBySSH is the exit code of ssh when it could not log in.
const refusedBySSH = 255

// findsNothing fails unless the second customer has the same node and finds nothing of the first,
// and the node refuses the first one's key.
func (o *operator) findsNothing(ctx context.Context, out io.Writer, first, second, host string) error {
	if err := o.carol.connect(ctx, out, second, host, "hostname; ls -A; cd ..; ls"); err != nil {
		return err
	}
	found, err := o.carol.ssh(ctx, out, second, o.carol.key, "cd ../..; grep -rsl "+leftText+" home root tmp var/tmp etc || echo nothing of acme")
	if err != nil {
		return err
	}
	if !strings.Contains(found, "nothing of acme") {
		return fmt.Errorf("carol finds what %s has left: %s", first, found)
	}
	fmt.Fprintln(out, "\nThe node refuses Bob's key, which was good there before:")
	_, err = o.carol.ssh(ctx, out, second, o.bob.key, "true")
	if err == nil {
		return errors.New("ssh with the key of the first customer should be refused, and it got in")
	}
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != refusedBySSH {
		return fmt.Errorf("ssh with the key of the first customer should be refused, and it ended with: %w", err)
	}
	return nil
}
