// Command kemudi is a complete Kubernetes in one program.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/obs"
)

// Exit codes that scripts can rely on.
const (
	exitError = 1 // something went wrong; the message says what
	exitUsage = 2 // the command line was wrong
	exitNo    = 3 // the answer is no (status: not ready)
)

// errNo ends a command whose answer is no without a further message.
var errNo = errors.New("no")

// errUsage marks errors of the command line.
type errUsage struct{ error }

func (e errUsage) Unwrap() error { return e.error }

func main() {
	findHome()
	if filepath.Base(os.Args[0]) == "kubectl" {
		os.Exit(kubectl(os.Args[1:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends the process at once
	args := os.Args[1:]
	if name := filepath.Base(os.Args[0]); slices.Contains(partNames(), name) {
		args = append([]string{name}, args...)
	}
	os.Exit(run(ctx, args))
}

// findHome gives a process without $HOME (a service, a bare shell) its owner's:
// else kubeconfig and caches would land in whatever is the working directory.
func findHome() {
	if os.Getenv("HOME") != "" {
		return
	}
	me, err := user.Current()
	if err != nil || me.HomeDir == "" {
		return
	}
	os.Setenv("HOME", me.HomeDir)
	// These were made of $HOME before main began.
	clientcmd.RecommendedConfigDir = filepath.Join(me.HomeDir, clientcmd.RecommendedHomeDir)
	clientcmd.RecommendedHomeFile = filepath.Join(clientcmd.RecommendedConfigDir, clientcmd.RecommendedFileName)
	clientcmd.RecommendedSchemaFile = filepath.Join(clientcmd.RecommendedConfigDir, clientcmd.RecommendedSchemaName)
}

// run executes the command line and returns the exit code.
func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	var usage errUsage
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errNo):
		return exitNo
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "kemudi: %v\nrun '%s --help' for what there is\n", err, c.CommandPath())
		return exitUsage
	}
	fmt.Fprintln(os.Stderr, "kemudi:", explain(err, os.Geteuid()))
	return exitError
}

// explain says what an error most likely means, and what to do.
func explain(err error, uid int) error {
	switch {
	case uid != 0 && errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w; this needs root: try sudo", err)
	case errors.As(err, new(errAsking)) && errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w; is the server running? (kemudi status)", err)
	}
	return err
}

// errAsking marks errors of commands that ask a server, by default the one of this machine.
type errAsking struct{ error }

func (e errAsking) Unwrap() error { return e.error }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "kemudi",
		Short: "A complete Kubernetes in one program",
		Long: `Kemudi is a complete Kubernetes in one program: API server, controllers,
scheduler, node agent, container runtime, network and DNS.`,
		Example: `  kemudi up                 # start a one-node cluster in the background
  kemudi kubectl get pods -A
  kemudi image import web.tar   # an image without a registry
  kemudi status
  kemudi up --at-boot       # from now on it starts with the machine
  kemudi token create       # what another machine joins by
  kemudi down               # stop it; its state stays
  kemudi reset              # remove every trace of it`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if err := settle(c); err != nil {
				return err
			}
			c.SetContext(obs.WithFlags(c.Context(), obs.Told(c.Flags())))
			return nil
		},
	}
	root.PersistentFlags().String(configFlag, "", "file of settings, each under its flag's name; default "+defaultConfig+", if it is there")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return errUsage{err} })
	addGroup(root, "A cluster on this machine:", newUp(), newStatus(), newKubectl(), newImage(), newBackup(), newDown(), newReset())
	addGroup(root, "Its machines:", newServer(), newAgent(), newToken(), newMember())
	addGroup(root, "What is asked of a cluster:", newCheck(), newIngress(), newSecrets(), newSimulate())
	addGroup(root, "Parts alone, each with the flags of upstream's program:", newAPIServer(), newControllerManager(), newScheduler(), newCloudManager(), newKubelet(), newProxy())
	root.AddCommand(newEdge(), newVersion())
	addCompletion(root)
	return group(root)
}

// addGroup adds commands that the help shows under one title.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range commands {
		c.GroupID = title
	}
	root.AddCommand(commands...)
}

// addCompletion adds cobra's own commands now rather than when it runs, with
// examples as all have.
func addCompletion(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Example = "  kemudi help server"
		case "completion":
			c.Example = "  source <(kemudi completion bash)"
			for _, shell := range c.Commands() {
				shell.Example = "  kemudi completion " + shell.Name()
			}
		}
	}
}

// group makes a command that has others below it: alone it shows them, and it
// refuses what it does not know.
func group(c *cobra.Command) *cobra.Command {
	c.SuggestionsMinimumDistance = 2 // letters
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		message := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
		if close := c.SuggestionsFor(args[0]); len(close) > 0 {
			message += "; did you mean " + strings.Join(close, " or ") + "?"
		}
		return errUsage{errors.New(message)}
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return c
}

// someArgs wants at least one argument.
func someArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errUsage{errors.New("nothing is named; want " + cmd.UseLine())}
	}
	return nil
}

// oneArg wants one argument.
func oneArg(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return errUsage{fmt.Errorf("%q is too much; want %s", strings.Join(args[1:], " "), cmd.UseLine())}
	}
	return someArgs(cmd, args)
}

// noArgs refuses arguments as a wrong command line.
func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return errUsage{err}
	}
	return nil
}
