package main

import (
	"context"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/parts"
)

func newScheduler() *cobra.Command {
	o := parts.DefaultScheduler()
	return part{
		name: parts.SchedulerName, short: "Run the scheduler alone, in the foreground",
		long: `Puts pods on the nodes of a cluster whose API server is another process. Of several such
processes one works; the others wait for it to end.`,
		example: `  kemudi kube-scheduler --kubeconfig scheduler.conf --authentication-kubeconfig scheduler.conf --authorization-kubeconfig scheduler.conf
  ln -s $(command -v kemudi) /usr/local/bin/kube-scheduler`,
		flags: func(f *pflag.FlagSet) {
			addKubeconfigFlags(f, &o.API)
			o.Secure.AddFlags(f)
			addEmulationFlags(f, &o.API.Emulated, &o.API.Compatible)
			addOfficeFlags(f, &o.Election)
			f.StringVar(&o.ConfigFile, configFlag, o.ConfigFile, "file of a KubeSchedulerConfiguration; flags go before it")
		},
		idle: []idleFlag{
			featureGates,
			{name: "pod-max-in-unschedulable-pods-duration", why: "pods that fit nowhere are tried again when something changes that may help them"},
		},
		shared: slices.Concat(clientIdle, portIdle),
		run: func(ctx context.Context, log *slog.Logger, _ func(string, bool)) error {
			o.Logger = log
			return o.Run(ctx)
		},
	}.command()
}
