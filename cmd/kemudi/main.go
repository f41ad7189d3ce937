// Command kemudi is a complete Kubernetes in one program.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
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
	if filepath.Base(os.Args[0]) == "kubectl" {
		os.Exit(kubectl(os.Args[1:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "kubectl" {
		os.Exit(kubectl(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

// run executes the command line and returns the exit code.
func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var usage errUsage
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errNo):
		return exitNo
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "kemudi: %v\nrun 'kemudi --help' for what there is\n", err)
		return exitUsage
	}
	fmt.Fprintln(os.Stderr, "kemudi:", err)
	return exitError
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "kemudi",
		Short: "A complete Kubernetes in one program",
		Long: `Kemudi is a complete Kubernetes in one program: API server, controllers,
scheduler, node agent, container runtime, network and DNS.`,
		Example: `  kemudi up                 # start a one-node cluster in the background
  kemudi kubectl get pods -A
  kemudi status
  kemudi down               # stop it; its state stays
  kemudi reset              # remove every trace of it`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return errUsage{err} })
	root.AddCommand(
		newServer(), newUp(), newDown(), newStatus(), newReset(), newImage(), newVersion(),
		&cobra.Command{
			Use: "kubectl", Short: "The real kubectl, for this cluster by default",
			Example: "  kemudi kubectl get nodes\n  ln -s $(command -v kemudi) /usr/local/bin/kubectl",
			// main runs it before the command line is parsed here.
			DisableFlagParsing: true, Run: func(*cobra.Command, []string) {},
		},
	)
	return root
}

// noArgs refuses arguments as a wrong command line.
func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return errUsage{err}
	}
	return nil
}
