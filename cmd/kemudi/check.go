package main

import (
	"cmp"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kemudi/kemudi/internal/up"
)

func newCheck() *cobra.Command {
	c := &cobra.Command{
		Use:     "check",
		Short:   "Look for what will not work elsewhere, or after a change",
		Example: "  kemudi check legacy",
	}
	c.AddCommand(newCheckLegacy())
	return group(c)
}

func newCheckLegacy() *cobra.Command {
	var a up.Access
	var output outputFlag
	c := &cobra.Command{
		Use:   "legacy",
		Short: "List who still calls deprecated versions of the API",
		Long: `Lists the programs that call versions of the API that are deprecated here and gone from
other Kubernetes clusters, or that --runtime-config has turned off: which, who, from where,
how often, and when last. Each server remembers the last 500 of them, over restarts too;
who is new is listed after some seconds, how often and when last after a quarter of an
hour at the most.`,
		Example: `  kemudi check legacy
  kemudi check legacy -o json | jq -r '.[] | select(.removed == "1.25") | .agent' | sort -u
  kemudi kubectl get --raw /metrics | grep apiserver_requested_deprecated_apis`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			calls, err := up.LegacyCalls(c.Context(), a)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(calls)
			}
			if len(calls) == 0 {
				fmt.Fprintln(c.OutOrStdout(), "nobody has called a deprecated version")
				return nil
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "VERSION\tRESOURCE\tGONE IN\tLAST\tCALLS\tUSER\tADDRESS\tAGENT")
			for i := range calls {
				fmt.Fprintln(w, legacyRow(&calls[i]))
			}
			return w.Flush()
		},
	}
	addAccess(c, &a)
	addOutput(c, &output)
	return c
}

// legacyRow is a line of the table.
func legacyRow(c *up.LegacyCall) string {
	version, resource, gone := c.Version, c.Resource, cmp.Or(c.Removed, "-")
	if c.Group != "" {
		version = c.Group + "/" + version
	}
	if c.Subresource != "" {
		resource += "/" + c.Subresource
	}
	if c.Off {
		gone += ", and off here"
	}
	return version + "\t" + resource + "\t" + gone + "\t" + duration.HumanDuration(time.Since(c.Last)) + " ago\t" + strconv.FormatInt(c.Count, 10) +
		"\t" + c.User + "\t" + c.Address + "\t" + strconv.Quote(c.Agent)
}
