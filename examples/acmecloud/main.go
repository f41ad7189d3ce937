// Command acmecloud is all that a vendor of a cloud has to write to have Kemudi's loops over it: the cloud (package acme) and
// this. It takes the flags of kemudi cloud-controller-manager, and --cloud-config is acme's own file. The servers of the
// cluster say --cloud-provider=external.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	cloudprovider "k8s.io/cloud-provider"

	"github.com/kemudi/kemudi/cloud"
	"github.com/kemudi/kemudi/examples/acmecloud/acme"
)

func main() {
	cloudprovider.RegisterCloudProvider(acme.Name, acme.Open)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cloud.Run(ctx, acme.Name, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "acmecloud:", err)
		os.Exit(1)
	}
}
