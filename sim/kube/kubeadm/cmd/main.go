// Command cmd is the stand-in of kubeadm as a program; tests build it.
package main

import (
	"context"
	"os"

	kubeadmsim "github.com/slipway-cloud/slipway/sim/kube/kubeadm"
)

func main() {
	os.Exit(kubeadmsim.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
