package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kemudi/kemudi/internal/cluster"
	"github.com/kemudi/kemudi/internal/join"
	"github.com/kemudi/kemudi/internal/up"
)

func newToken() *cobra.Command {
	c := &cobra.Command{
		Use:     "token",
		Short:   "Make, list and revoke the tokens that machines join by",
		Example: "  kemudi token create --ttl 1h --uses 3\n  kemudi token list\n  kemudi token revoke abcdef",
	}
	c.AddCommand(newTokenCreate(), newTokenList(), newTokenRevoke())
	return group(c)
}

// addAccess adds the flags that say which cluster is meant, and by what right, to a command that asks it.
func addAccess(c *cobra.Command, a *up.Access) {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := run(c, args); err != nil {
			return errAsking{err}
		}
		return nil
	}
	a.DataDir = cluster.DefaultDataDir
	c.Flags().Var((*dirFlag)(&a.DataDir), "data-dir", "directory of the state of a server on this machine")
	c.Flags().StringVar(&a.Kubeconfig, "kubeconfig", "", "file with an administrator's access; empty: the one of the server on this machine")
}

// purposeFlag is what machines may become by a token.
type purposeFlag bool

func (p *purposeFlag) Type() string { return "part" }

func (p *purposeFlag) String() string {
	if *p {
		return "server"
	}
	return "agent"
}

func (p *purposeFlag) Set(s string) error {
	if s != "agent" && s != "server" {
		return fmt.Errorf("%q is neither agent nor server", s)
	}
	*p = s == "server"
	return nil
}

func newTokenCreate() *cobra.Command {
	var a up.Access
	var output outputFlag
	o := up.TokenOptions{Life: 24 * time.Hour}
	c := &cobra.Command{
		Use:   "create",
		Short: "Make a token that machines join by, and print it",
		Long: `Makes a token and prints it: this once, it is kept where nobody can read it again
but administrators. Who has it can add machines to the cluster, so give it a short
life, and a number of uses. It also names the cluster by the pin of its authority:
a machine that joins gives nothing away to a cluster that is another.`,
		Example: `  kemudi token create
  kemudi token create --ttl 15m --uses 1 --description rack-7
  kemudi token create --for server --uses 2`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Check(); err != nil {
				return errUsage{err}
			}
			t, err := up.CreateToken(c.Context(), a, o)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(t)
			}
			fmt.Fprintln(c.OutOrStdout(), t.Token)
			// For people, beside what scripts read.
			as := ""
			if t.For != up.RoleAgent {
				as = " --join-as " + t.For
			}
			fmt.Fprintf(c.ErrOrStderr(), "on the machine that is to join, with --at-boot for systemd to start it from then on:\n  kemudi up --join %s%s --token %s\n", strings.Join(t.Servers, ","), as, t.Token)
			return nil
		},
	}
	f := c.Flags()
	f.DurationVar(&o.Life, "ttl", o.Life, "how long it is good; 0 is for ever")
	f.IntVar(&o.Uses, "uses", 0, "how many machines may join by it; 0 is any number")
	f.Var((*purposeFlag)(&o.Server), "for", "what machines may become by it: agent, or server, which is an agent too")
	f.StringVar(&o.Description, "description", "", "what it is for, as the list shows")
	if err := c.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{"agent", "server"}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is there: see above
	}
	addAccess(c, &a)
	addOutput(c, &output)
	return c
}

func newTokenList() *cobra.Command {
	var a up.Access
	var output outputFlag
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tokens that are good, without their secrets",
		Example: "  kemudi token list\n  kemudi token list -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			tokens, err := up.Tokens(c.Context(), a)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(tokens)
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tFOR\tENDS IN\tUSES LEFT\tDESCRIPTION")
			for _, t := range tokens {
				ends, left := "never", "any number"
				if t.Expires != nil {
					ends = duration.HumanDuration(time.Until(*t.Expires))
				}
				if t.UsesLeft != nil {
					left = strconv.Itoa(*t.UsesLeft) + " of " + strconv.Itoa(t.Uses)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.ID, t.For, ends, left, t.Description)
			}
			return w.Flush()
		},
	}
	addAccess(c, &a)
	addOutput(c, &output)
	return c
}

func newTokenRevoke() *cobra.Command {
	var a up.Access
	c := &cobra.Command{
		Use:     "revoke ID...",
		Aliases: []string{"delete"},
		Short:   "End tokens; machines that have joined by them stay",
		Example: "  kemudi token revoke abcdef\n  kubectl delete node web-7   # what ends the access of a machine that has joined",
		Args:    someArgs,
		RunE: func(c *cobra.Command, args []string) error {
			var ids []string
			for _, arg := range args {
				id, err := join.ParseTokenID(arg)
				if err != nil {
					return errUsage{err}
				}
				ids = append(ids, id)
			}
			for _, id := range ids {
				if err := up.RevokeToken(c.Context(), a, id); err != nil {
					return err
				}
				fmt.Fprintln(c.OutOrStdout(), "revoked", id)
			}
			return nil
		},
	}
	addAccess(c, &a)
	return c
}
