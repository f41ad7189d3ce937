package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/cluster"
	"github.com/kemudi/kemudi/internal/join"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/up"
)

func newAgent() *cobra.Command {
	o := cluster.AgentDefaults()
	var logs obs.LogOptions
	var token, tokenFile string
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run pods of a cluster whose servers are other machines, in the foreground",
		Long: `Joins a cluster by a token, and runs its pods: container runtime, node agent,
network, service proxy and DNS, without a control plane. It ends on SIGTERM; containers
keep running, and are found again by the next start.

Once it has joined, it needs neither --server nor --token: who it is, and where the
servers are, stays in the data directory. What all machines of a cluster have in common
it asks the servers for. A token is made on a server by kemudi token create.`,
		Example: `  kemudi agent --server 10.0.0.1 --token abcdef.0123456789abcdef.PIN
  kemudi agent --server https://10.0.0.1:6443 --token-file /root/token
  kemudi agent                         # a machine that has joined before`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.Token, err = readToken(token, tokenFile); err != nil {
				return err
			}
			if o.Logger, o.Step, err = foreground(logs); err != nil {
				return err
			}
			if err := takeInvitation(&o.Machine, up.RoleAgent, &o.Servers, &o.Token); err != nil {
				return err
			}
			return cluster.RunAgent(c.Context(), o)
		},
	}
	logs.AddFlags(c.Flags())
	f := c.Flags()
	f.StringSliceVar(&o.Servers, "server", o.Servers, "address or URL of a server, or of several; port 6443 unless it is said")
	f.StringVar(&token, "token", token, "token to join by; others on this machine may see it here: prefer --token-file, or KEMUDI_TOKEN")
	obs.Classify(f, "token")
	f.StringVar(&tokenFile, "token-file", tokenFile, "file with the token")
	f.Uint16Var(&o.LocalPort, "lb-server-port", o.LocalPort, "port of 127.0.0.1 that leads to a server that lives, for programs on this machine; 0: none")
	addSettingsFlags(f, &o)
	addMachineFlags(f, &o.Machine)
	return c
}

// addSettingsFlags adds those that are a server's to say, for machines that are all
// given the same file of settings.
func addSettingsFlags(f *pflag.FlagSet, o *cluster.AgentOptions) {
	f.Var((*prefixesFlag)(&o.Said.ServiceCIDRs), "service-cluster-ip-range", "addresses of services; if said, they must be the cluster's")
	f.Var((*prefixesFlag)(&o.Said.ClusterCIDRs), "cluster-cidr", "addresses of pods; if said, they must be the cluster's")
	f.Var((*addrFlag)(&o.Said.ClusterDNS), "cluster-dns", "address of the DNS service; if said, it must be the cluster's")
	f.StringVar(&o.Said.ClusterDomain, "cluster-domain", o.Said.ClusterDomain, "DNS domain of the cluster; if said, it must be the cluster's")
	f.StringVar(&o.Said.CloudProvider, "cloud-provider", o.Said.CloudProvider, "external, if a cloud is to say what the node is; if said, it must be so in the cluster")
	f.StringVar(&o.Said.PodNetwork, "pod-network", o.Said.PodNetwork, "how packets get to the pods of other nodes; if said, it must be as in the cluster")
	f.Uint16Var(&o.Said.VXLANPort, "vxlan-port", o.Said.VXLANPort, "UDP port to which nodes send each other VXLAN; if said, it must be the cluster's")
	f.Uint32Var(&o.Said.VXLANID, "vxlan-id", o.Said.VXLANID, "number of the cluster's VXLAN network; if said, it must be that")
}

// readToken is the token that was given, or none.
func readToken(text, file string) (join.Token, error) {
	if text != "" && file != "" {
		return join.Token{}, errUsage{fmt.Errorf("--token and --token-file: give one of them")}
	}
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return join.Token{}, fmt.Errorf("--token-file: %w", err)
		}
		text = strings.TrimSpace(string(data))
	}
	if text == "" {
		return join.Token{}, nil
	}
	t, err := join.ParseToken(text)
	if err != nil {
		return join.Token{}, errUsage{err}
	}
	return t, nil
}
