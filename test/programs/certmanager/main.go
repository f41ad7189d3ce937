package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// parts are the processes that cert-manager is installed as.
var parts = map[string]func(ctx context.Context, args []string) error{"controller": runController, "webhook": runWebhook, "cainjector": runInjector}

func main() {
	if len(os.Args) < 2 || parts[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: certmanager controller|webhook|cainjector FLAGS")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(klog.Background())
	if err := parts[os.Args[1]](ctx, slices.Clone(os.Args[2:])); err != nil {
		klog.ErrorS(err, "it has ended", "part", os.Args[1])
		klog.Flush()
		os.Exit(1)
	}
}
