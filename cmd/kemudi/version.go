package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kemudi/kemudi/internal/version"
)

func newVersion() *cobra.Command {
	var output outputFlag
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  kemudi version\n  kemudi version -o json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			info := version.Info()
			if output == "json" {
				return printJSON(info)
			}
			fmt.Printf("kemudi %s (Kubernetes %s, %s, %s)\n", version.Version, info.GitVersion, info.GoVersion, info.Platform)
			return nil
		},
	}
	addOutput(c, &output)
	return c
}
