package main

import (
	"fmt"
	"log/slog"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kemudi/kemudi/internal/cluster"
	"github.com/kemudi/kemudi/internal/up"
)

func newMember() *cobra.Command {
	c := &cobra.Command{
		Use:     "member",
		Short:   "List and remove the servers of a cluster, or go on with one that is left",
		Example: "  kemudi member list\n  kemudi member remove machine-3\n  kemudi member recover",
	}
	c.AddCommand(newMemberList(), newMemberRemove(), newMemberRecover())
	return group(c)
}

func newMemberList() *cobra.Command {
	var a up.Access
	var output outputFlag
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the servers that keep the cluster's store",
		Long: `Lists the servers of a cluster, each of which keeps all of its store: which leads,
which count for a majority, and which are learning what there is before they do.`,
		Example: "  kemudi member list\n  kemudi member list -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			members, err := up.Members(c.Context(), a)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(members)
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tROLE\tMEMBER\tADDRESS")
			for _, m := range members {
				role := m.Role
				if !m.Started {
					role += " (never started)"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", m.Name, role, m.Member, m.URL)
			}
			return w.Flush()
		},
	}
	addAccess(c, &a)
	addOutput(c, &output)
	return c
}

func newMemberRemove() *cobra.Command {
	var a up.Access
	c := &cobra.Command{
		Use:     "remove NAME",
		Aliases: []string{"rm"},
		Short:   "Take a server out of the cluster, whether or not it runs",
		Long: `Takes a server out of the cluster. One that runs ends, with a message that says so;
one that is down will when it comes back. Its node stays in the list of nodes: drain it before,
and delete it afterwards. Containers on its machine are left as they are; kemudi reset there
removes them, or it joins again by a new token.

With two servers of which one is down there is no majority to agree: the removal counts when the one
that stays is started anew (kemudi down, kemudi up). See kemudi member recover, too.`,
		Example: "  kemudi kubectl drain machine-3 --ignore-daemonsets\n  kemudi member remove machine-3\n  kemudi kubectl delete node machine-3",
		Args:    oneArg,
		RunE: func(c *cobra.Command, args []string) error {
			gone, err := up.RemoveMember(c.Context(), a, args[0])
			if err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), "removed", gone.Name)
			return nil
		},
	}
	addAccess(c, &a)
	return c
}

func newMemberRecover() *cobra.Command {
	m := cluster.Defaults().Machine
	c := &cobra.Command{
		Use:   "recover",
		Short: "Make a cluster of one of the server on this machine, when the others are lost",
		Long: `Makes a cluster of one of what the server on this machine has, for when so many servers
are lost for good that no majority is left: nothing can be written any more. The server must
not run, and none of the others may ever run again on its data. Writes that only they had are
gone. Where several are left, recover the one, and have the others reset and join anew.`,
		Example: "  kemudi down\n  kemudi member recover\n  kemudi up",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			m.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
			if err := cluster.Recover(c.Context(), m); err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), "the server on this machine is a cluster of one now: kemudi up starts it. Reset what is left of the others (kemudi reset, on each) before they start again; then they can join anew")
			return nil
		},
	}
	c.Flags().Var((*dirFlag)(&m.DataDir), "data-dir", "directory of the server's state")
	c.Flags().Var((*dirFlag)(&m.RunDir), "run-dir", "directory of its sockets and process IDs")
	c.Flags().StringVar(&m.NodeName, "node-name", m.NodeName, "name of its node; default the host's name")
	return c
}
