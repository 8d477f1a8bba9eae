package pxesim

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// run is one script that is being followed.
type run struct {
	m      *Machine
	b      *Boot
	lines  []string
	labels map[string]int
	kernel bool // an image was loaded
}

// verdict is what a command leads to.
type verdict struct {
	ok   bool
	end  bool   // the script is over
	next string // the script to go on with
	jump string // the label to go on at
}

// follow does a script's commands in order, as iPXE does: a command that fails
// ends the script unless something follows it after ||.
func (m *Machine) follow(ctx context.Context, b *Boot) (next string, err error) {
	r := run{m: m, b: b, lines: strings.Split(b.Script, "\n"), labels: map[string]int{}}
	b.Images, b.CommandLine, b.SeedURL, b.Token = map[string][]byte{}, "", "", ""
	for i, l := range r.lines {
		if name, ok := strings.CutPrefix(strings.TrimSpace(l), ":"); ok {
			r.labels[name] = i
		}
	}
	steps := 0
	for at := 0; at < len(r.lines); at++ {
		if steps++; steps > maxCommands {
			return "", fmt.Errorf("the script does not end")
		}
		v, err := r.line(ctx, r.lines[at])
		switch {
		case err != nil:
			return "", err
		case v.end:
			return v.next, nil
		case v.jump != "":
			to, known := r.labels[v.jump]
			if !known {
				return "", fmt.Errorf("the script has no label %s", v.jump)
			}
			at = to
		case !v.ok:
			return "", fmt.Errorf("the script stopped at %q", r.lines[at])
		}
	}
	b.Kind = Local // a script that ends gives the machine back to its firmware
	return "", nil
}

// line does one line, with its || and && parts.
func (r *run) line(ctx context.Context, line string) (verdict, error) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' || line[0] == ':' {
		return verdict{ok: true}, nil
	}
	v, do := verdict{ok: true}, true
	var command []string
	flush := func() error {
		if !do {
			command = nil
			return nil
		}
		var err error
		v, err = r.command(ctx, command)
		command = nil
		return err
	}
	for _, word := range strings.Fields(r.expand(line)) {
		if word != "||" && word != "&&" && word != ";" {
			command = append(command, word)
			continue
		}
		if err := flush(); err != nil || v.end || v.jump != "" {
			return v, err
		}
		do = word == ";" || (word == "||") != v.ok
	}
	return v, flush()
}

var setting = regexp.MustCompile(`\$\{([a-z/0-9]*)(:[a-z]+)?\}`)

// expand puts the machine's settings in.
func (r *run) expand(line string) string {
	return setting.ReplaceAllStringFunc(line, func(s string) string {
		parts := setting.FindStringSubmatch(s)
		value := r.m.SMBIOS[parts[1]]
		switch parts[1] {
		case "mac":
			value = r.m.MAC
		case "platform":
			value = "efi"
		}
		switch parts[2] {
		case ":hexhyp":
			value = strings.ReplaceAll(value, ":", "-")
		case ":uristring":
			value = url.QueryEscape(value)
		}
		return value
	})
}

func (r *run) command(ctx context.Context, words []string) (verdict, error) {
	if len(words) == 0 { // after a closing ||
		return verdict{ok: true}, nil
	}
	args := words[1:]
	switch words[0] {
	case "echo":
		r.b.Said = append(r.b.Said, strings.Join(args, " "))
	case "imgfree":
		r.b.Images = map[string][]byte{}
	case "sleep":
		r.b.Kind = Waits // it has nothing else to do until then
		return verdict{end: true}, nil
	case "goto":
		return verdict{ok: true, jump: args[0]}, nil
	case "iseq":
		return verdict{ok: len(args) == 2 && args[0] == args[1]}, nil
	case "chain":
		return verdict{end: true, next: args[len(args)-1]}, nil
	case "kernel", "initrd":
		return r.load(ctx, args)
	case "boot":
		if !r.kernel {
			return verdict{}, nil
		}
		r.b.Kind = Installs
		return verdict{end: true}, nil
	case "sanboot", "exit":
		r.b.Kind = Local
		return verdict{end: true}, nil
	default:
		return verdict{}, fmt.Errorf("iPXE has no command %q", words[0])
	}
	return verdict{ok: true}, nil
}

// load fetches an image: kernel --name NAME URL ARGUMENTS, initrd --name NAME
// URL.
func (r *run) load(ctx context.Context, args []string) (verdict, error) {
	if len(args) < 3 || args[0] != "--name" {
		return verdict{}, fmt.Errorf("an image without --name: %v", args)
	}
	body, err := r.m.get(ctx, args[2], maxLoad)
	if err != nil {
		r.b.Said = append(r.b.Said, err.Error())
		return verdict{}, nil //nolint:nilerr // a command that failed, which the script may bear
	}
	r.b.Images[args[1]] = body
	if args[1] != "kernel" {
		return verdict{ok: true}, nil
	}
	r.kernel = true
	r.b.CommandLine = strings.Join(args[3:], " ")
	for _, word := range args[3:] {
		if _, seed, ok := strings.Cut(word, ";s="); ok {
			r.b.SeedURL = seed
			parts := strings.Split(strings.TrimSuffix(seed, "/"), "/")
			r.b.Token = parts[len(parts)-1]
		}
	}
	return verdict{ok: true}, nil
}
