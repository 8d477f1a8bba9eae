package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/assembly/devserver/identity"
	"github.com/slipway-cloud/slipway/client"
)

// signIns prints who can sign in to the portal, and how.
func (o *operator) signIns(out io.Writer) {
	fmt.Fprintf(out, "\nSign in to the portal at %s/portal/ with the identity provider of this stack (%s):\n", o.stack.Config.API.PublicURL, o.stack.Identity.Issuer)
	for _, u := range o.stack.Identity.Users {
		fmt.Fprintf(out, "  %-9s %s  %s\n", u.Name, u.Password, describe(u))
	}
	fmt.Fprintln(out, "or with an API token, which `slipway token create NAME` prints.")
	o.loginLines(out)
}

// loginLines prints how an operator and a customer sign in from the command line. Each has a
// context of its own, so both lines work one after the other.
func (o *operator) loginLines(out io.Writer) {
	fmt.Fprintln(out, "Sign in from the command line; each line opens the page of the identity provider, where the password above is asked for:")
	for _, who := range []struct{ what, name string }{{"an operator", identity.Operator}, {"a customer", identity.Ada}} {
		fmt.Fprintf(out, "  bin/slipway login --server %s --name %s   # as %s: user name %s\n", o.stack.Config.API.PublicURL, who.name, who.what, who.name)
	}
	fmt.Fprintln(out, "Add --device on a machine without a browser, or for a second user while the browser is still signed in as the first.")
}

func describe(u identity.User) string {
	if len(u.Roles) > 0 {
		return "role " + strings.Join(u.Roles, ", ")
	}
	return "a customer without a role: the portal shows nothing, slipway and the API the projects of " + u.Email
}

// customer is somebody of another company with the slipway program.
type customer struct {
	*operator
	identity.User
	home, token string
	project     string // in which the customer has nodes
	key         string // the file of the private half of the SSH key
}

// signInCustomer signs a customer in at the identity provider: for the API, and with the program as
// on a machine without a browser.
func (o *operator) signInCustomer(ctx context.Context, name string) (*customer, error) {
	self, err := o.stack.Identity.User(name)
	if err != nil {
		return nil, err
	}
	token, err := o.stack.Identity.BearerToken(ctx, name)
	if err != nil {
		return nil, err
	}
	o.customerTokens = append(o.customerTokens, token)
	c := &customer{operator: o, User: self, home: filepath.Join(o.stack.Dir, "cli-"+name), token: token}
	return c, c.loginByDevice(ctx)
}

var (
	deviceAddress = regexp.MustCompile(`http://\S+user_code=\S+`)
	keptToken     = regexp.MustCompile(`(?m)^\s*(?:refresh_)?token: (\S+)$`)
)

const deviceLimit = time.Minute

// loginByDevice runs slipway login --device and confirms the code that it prints, as the customer
// does on another machine.
func (c *customer) loginByDevice(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deviceLimit)
	defer cancel()
	if err := os.MkdirAll(c.home, 0o700); err != nil {
		return err
	}
	cmd := c.commandOf(ctx, c.home, "login", "--server", c.stack.Config.API.PublicURL, "--device")
	said, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var heard strings.Builder
	lines := bufio.NewScanner(said)
	for confirmed := false; lines.Scan(); {
		heard.WriteString(lines.Text() + "\n")
		if address := deviceAddress.FindString(lines.Text()); address != "" && !confirmed {
			confirmed = true
			if _, err := c.stack.Identity.NewBrowser().AnswerDevice(ctx, address, c.User, true); err != nil {
				cancel()
				return errors.Join(err, cmd.Wait())
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("slipway login --device: %w: %s", err, heard.String())
	}
	kept, err := os.ReadFile(filepath.Join(c.home, "slipway", "config.yaml"))
	for _, found := range keptToken.FindAllStringSubmatch(string(kept), -1) {
		c.customerTokens = append(c.customerTokens, found[1])
	}
	return err
}

// show prints a command and runs it as the customer.
func (c *customer) show(ctx context.Context, out io.Writer, args ...string) error {
	fmt.Fprintf(out, "\n%s$ slipway %s\n", c.Name, strings.Join(args, " "))
	cmd := c.commandOf(ctx, c.home, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: slipway %s: %w", c.Name, strings.Join(args, " "), err)
	}
	return nil
}

// read runs a command and decodes what it prints as JSON.
func read(ctx context.Context, o *operator, home string, into any, args ...string) error {
	raw, err := o.commandOf(ctx, home, append(args, "-o", "json")...).Output()
	if err != nil {
		var said *exec.ExitError
		if errors.As(err, &said) {
			err = fmt.Errorf("%w: %s", err, said.Stderr)
		}
		return fmt.Errorf("slipway %s: %w", strings.Join(args, " "), err)
	}
	return json.Unmarshal(raw, into)
}

// acceptInvitation accepts the invitation that waits for the customer.
func (c *customer) acceptInvitation(ctx context.Context, out io.Writer) error {
	var mine struct{ Data []struct{ ID string } }
	if err := read(ctx, c.operator, c.home, &mine, "invitation", "mine"); err != nil {
		return err
	}
	if len(mine.Data) != 1 {
		return fmt.Errorf("%s has %d invitations, and should have one", c.Name, len(mine.Data))
	}
	return c.show(ctx, out, "invitation", "accept", mine.Data[0].ID)
}

// takeOnCustomers makes a project with two members and an SSH key, and shows that another customer
// sees nothing of it.
func (o *operator) takeOnCustomers(ctx context.Context, out io.Writer) error {
	fmt.Fprintln(out, "\nA customer is taken on. Ada and Bob of acme and Carol of globex have signed in: each ran slipway login --device and confirmed its code in a browser.")
	var people []*customer
	for _, name := range []string{identity.Ada, identity.Bob, identity.Carol} {
		c, err := o.signInCustomer(ctx, name)
		if err != nil {
			return err
		}
		people = append(people, c)
	}
	ada, bob, carol := people[0], people[1], people[2]
	o.ada, o.bob, o.carol = ada, bob, carol
	project, err := o.makeProject(ctx, out, "acme", "training", ada)
	if err != nil {
		return err
	}
	ada.project, bob.project = project, project
	if err := ada.show(ctx, out, "invitation", "create", project, "--email", bob.Email, "--role", "member"); err != nil {
		return err
	}
	if err := bob.acceptInvitation(ctx, out); err != nil {
		return err
	}
	key, err := bob.writeKey()
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"key", "create", project, "laptop", key}, {"member", "list", project},
	} {
		if err := bob.show(ctx, out, args...); err != nil {
			return err
		}
	}
	if err := ada.receiveEvents(ctx, out, project); err != nil {
		return err
	}
	return carol.seesNothing(ctx, out, project)
}

// makeProject makes a billing account and a project in it, and has its owner accept the invitation.
// It returns the project's id.
func (o *operator) makeProject(ctx context.Context, out io.Writer, company, name string, owner *customer) (string, error) {
	var account, project struct{ ID string }
	if err := read(ctx, o, o.home, &account, "billing-account", "create", company); err != nil {
		return "", err
	}
	args := []string{"project", "create", name, "--billing-account", account.ID, "--owner-email", owner.Email}
	fmt.Fprintf(out, "\n$ slipway billing-account create %s\n$ slipway %s\n", company, strings.Join(args, " "))
	if err := read(ctx, o, o.home, &project, args...); err != nil {
		return "", err
	}
	return project.ID, owner.acceptInvitation(ctx, out)
}

// writeKey makes an SSH key and returns the file of its public half. The private half is beside it,
// as ssh-keygen leaves it.
func (c *customer) writeKey() (string, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return "", err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return "", err
	}
	c.key = filepath.Join(c.home, "id_ed25519")
	if err := os.WriteFile(c.key, pem.EncodeToMemory(block), 0o600); err != nil {
		return "", err
	}
	return c.key + ".pub", os.WriteFile(c.key+".pub", ssh.MarshalAuthorizedKey(key), 0o600)
}

// seesNothing fails unless the project does not exist for the customer.
func (c *customer) seesNothing(ctx context.Context, out io.Writer, project string) error {
	fmt.Fprintln(out, "\nFor Carol the project does not exist:")
	if err := c.show(ctx, out, "project", "list"); err != nil {
		return err
	}
	api, err := newAPI(c.stack, c.token)
	if err != nil {
		return err
	}
	for _, path := range []string{"", "/members", "/ssh-keys"} {
		switch path {
		case "":
			_, err = api.GetProject(ctx, project)
		case "/members":
			_, err = api.ListMembers(ctx, project, nil)
		case "/ssh-keys":
			_, err = api.ListSSHKeys(ctx, project, nil)
		}
		if client.StatusOf(err) != http.StatusNotFound {
			return fmt.Errorf("%s asks for a project of others and gets %w, where 404 is right", c.Name, err)
		}
		fmt.Fprintf(out, "%s: GET /api/v1/projects/%s%s  ->  404\n", c.Name, project, path)
	}
	return nil
}
