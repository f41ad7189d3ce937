package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	"github.com/kemudi/kemudi/internal/cluster"
	_ "github.com/kemudi/kemudi/internal/english" // before kubectl's packages, whose texts it spares this process to look up
	"github.com/kemudi/kemudi/internal/up"
)

func newKubectl() *cobra.Command {
	return &cobra.Command{
		Use: "kubectl", Short: "The real kubectl, for this cluster by default",
		Example:            "  kemudi kubectl get nodes\n  ln -s $(command -v kemudi) /usr/local/bin/kubectl",
		DisableFlagParsing: true,
		Run: func(_ *cobra.Command, args []string) {
			signal.Reset(os.Interrupt, syscall.SIGTERM) // it has its own ways to end
			os.Exit(kubectl(args))
		},
	}
}

// kubectl runs the real kubectl. A person who has no kubeconfig, on the machine
// of a server, gets the server's.
func kubectl(args []string) int {
	os.Args = append([]string{"kubectl"}, args...)
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if config, err := rules.Load(); err == nil && len(config.Contexts) == 0 && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		if admin := up.AdminKubeconfig(dataDir()); readable(admin) {
			os.Setenv(clientcmd.RecommendedConfigPathEnvVar, admin)
		}
	}
	// As kubectl's own main runs it: with the flags of its log, such as -v.
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints and exits as kubectl does
		fmt.Fprintln(os.Stderr, err)
		return exitError
	}
	return 0
}

// dataDir is the data directory that the other commands would use here.
func dataDir() string {
	c, _, err := newRoot().Find([]string{"status"})
	if err == nil && c.ParseFlags(nil) == nil && settle(c) == nil {
		if dir, err := c.Flags().GetString("data-dir"); err == nil {
			return dir
		}
	}
	return cluster.DefaultDataDir
}

func readable(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
