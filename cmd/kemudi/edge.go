package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/kemudi/kemudi/internal/edge"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/version"
)

func newEdge() *cobra.Command {
	return &cobra.Command{
		Use:   "edge",
		Short: "Serve Ingresses: started by a node that has some, not by people",
		Long: `Takes HTTP and HTTPS from outside the cluster to pods, as the Ingresses say. A server
or an agent starts it for its node when the cluster has the first Ingress, tells it what
to do by a socket, and ends it when there is none any more. It goes on while they
restart.`,
		Example: "  kemudi server --ingress-http-port 8080 --ingress-https-port 8443   # where it serves",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := obs.NewLogger(os.Stderr, obs.LogOptions{})
			if err != nil {
				return err
			}
			orders, err := edge.Inherited()
			if err != nil {
				return err
			}
			return edge.New(edge.Options{Control: orders, Version: version.Git(), Log: log, AccessLog: os.Getenv(edge.AccessLogEnv), GivesBack: true}).Run(c.Context())
		},
	}
}
