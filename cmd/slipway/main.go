// Command slipway is the command line client of Slipway's API.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/slipway-cloud/slipway/cli"
)

// version is the build's version; the linker sets it.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, cli.System(version), os.Args[1:])
	stop()
	os.Exit(code)
}
