// Command generate runs the generators that are external tools, in the checkout around the current
// folder, or only those that are named, and records what they wrote. `make generate` runs it; it
// builds a tool that is missing.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/slipway-cloud/slipway/assembly/devserver/toolcache"
	"github.com/slipway-cloud/slipway/test/generated"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	root, err := toolcache.Root()
	if err != nil {
		return err
	}
	generators, err := generated.Generators(root)
	if err != nil {
		return err
	}
	for _, g := range generators {
		if len(os.Args) > 1 && !slices.Contains(os.Args[1:], g.Tool) {
			continue
		}
		program, err := ensure(ctx, append(g.Plugins, g.Tool)...)
		if err != nil {
			return err
		}
		fmt.Println(g.Tool, strings.Join(g.Args, " "))
		cmd := exec.CommandContext(ctx, program, g.Args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", g.Tool, err)
		}
		if err := removeStale(root, g.Outputs); err != nil {
			return err
		}
	}
	return generated.Write(root)
}

// ensure builds the tools that are missing. It returns the path of the last one.
func ensure(ctx context.Context, names ...string) (program string, err error) {
	for _, name := range names {
		tool, err := toolcache.Find(name)
		if err != nil {
			return "", err
		}
		if program, err = toolcache.Ensure(ctx, tool, os.Stderr); err != nil {
			return "", err
		}
	}
	return program, nil
}

// removeStale removes the code of queries that are gone, which sqlc leaves. The queries of a folder
// x/gen are in x/queries.
func removeStale(root string, outputs []string) error {
	const suffix = ".go"
	for _, out := range outputs {
		files, err := filepath.Glob(filepath.Join(root, out, "*.sql"+suffix))
		if err != nil {
			return err
		}
		for _, file := range files {
			query := filepath.Join(root, filepath.Dir(out), "queries", strings.TrimSuffix(filepath.Base(file), suffix))
			if _, err := os.Stat(query); os.IsNotExist(err) {
				if err := os.Remove(file); err != nil {
					return fmt.Errorf("remove the code of a query that is gone: %w", err)
				}
			}
		}
	}
	return nil
}
