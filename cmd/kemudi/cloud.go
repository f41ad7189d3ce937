package main

import (
	"github.com/spf13/cobra"

	"github.com/kemudi/kemudi/internal/cloudmanager"
	"github.com/kemudi/kemudi/internal/obs"
)

func newCloudManager() *cobra.Command {
	o := cloudmanager.Defaults()
	var logs obs.LogOptions
	var asked versionFlag
	c := &cobra.Command{
		Use:   cloudmanager.Name,
		Short: "Run the loops of a cloud beside a cluster, in the foreground",
		Long: `Keeps a cluster and its cloud in agreement: nodes, routes, balancers. It is a process of
its own, on a machine or in a pod, for a cluster whose servers say --cloud-provider=external.
A server that names a built-in cloud runs the same loops itself.`,
		Example: `  kemudi cloud-controller-manager --cloud-provider loopback --cloud-config machines.yaml --kubeconfig admin.conf
  ln -s $(command -v kemudi) /usr/local/bin/cloud-controller-manager`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if asked.print() {
				return nil
			}
			if o.Logger, _, err = foreground(logs); err != nil {
				return err
			}
			return cloudmanager.Run(c.Context(), o, nil)
		},
	}
	logs.AddFlags(c.Flags())
	asked.add(c.Flags())
	o.AddFlags(c.Flags())
	return c
}
