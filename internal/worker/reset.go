package worker

import (
	"context"

	"github.com/kemudi/kemudi/internal/container"
	"github.com/kemudi/kemudi/internal/edgefeed"
	"github.com/kemudi/kemudi/internal/kubelet"
	"github.com/kemudi/kemudi/internal/kubelet/shutdown"
	"github.com/kemudi/kemudi/internal/netpolicy"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/proxy"
	"github.com/kemudi/kemudi/internal/up"
)

// Removers undo what a worker with these directories changed on this machine,
// in the order in which it must be undone.
func Removers(dataDir, runDir string) []up.Remover {
	return []up.Remover{
		{Part: "edge", Remove: func(ctx context.Context) ([]string, error) { return edgefeed.Reset(ctx, runDir) }},
		{Part: "containers", Remove: func(ctx context.Context) ([]string, error) {
			return container.Reset(ctx, container.Options{DataDir: dataDir, RunDir: runDir, CgroupParent: cgroupParent(runDir)})
		}},
		{Part: "cgroups of others", Remove: func(context.Context) ([]string, error) { return giveBackCgroups(dataDir) }},
		{Part: "waits of shutdowns", Remove: func(context.Context) ([]string, error) { return shutdown.Reset(shutdown.ConfDir) }},
		{Part: "pod volumes", Remove: func(ctx context.Context) ([]string, error) { return releaseVolumes(ctx, dataDir) }},
		{Part: "pod network", Remove: func(ctx context.Context) ([]string, error) {
			return podnet.Reset(ctx, podnetOptions(dataDir, runDir))
		}},
		{Part: "service proxy", Remove: func(ctx context.Context) ([]string, error) {
			if other, err := podnet.Owner(podnetOptions(dataDir, runDir)); err != nil || other != "" {
				return nil, err // the rules here are another server's
			}
			return proxy.Reset(ctx)
		}},
		{Part: "network policies", Remove: func(ctx context.Context) ([]string, error) {
			if other, err := podnet.Owner(podnetOptions(dataDir, runDir)); err != nil || other != "" {
				return nil, err // the rules here are another server's
			}
			return netpolicy.Reset(ctx)
		}},
		{Part: "pod logs", Remove: func(context.Context) ([]string, error) { return removeLogs(dataDir, kubelet.LogLinksDir) }},
		{Part: "root directory", Remove: func(context.Context) ([]string, error) { return unlinkRoot(dataDir, chartsDir) }},
		{Part: "pod files", Remove: func(context.Context) ([]string, error) { return removeRoots(dataDir) }},
		{Part: "hosts file", Remove: func(context.Context) ([]string, error) { return removeHosts(hostsFile) }},
	}
}
