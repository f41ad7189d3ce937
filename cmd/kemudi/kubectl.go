package main

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	"github.com/kemudi/kemudi/internal/cluster"
	"github.com/kemudi/kemudi/internal/up"
)

// kubectl runs the real kubectl. A person who has no kubeconfig, on the machine
// of a server, gets the server's.
func kubectl(args []string) int {
	os.Args = append([]string{"kubectl"}, args...)
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if config, err := rules.Load(); err == nil && len(config.Contexts) == 0 && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		if admin := up.AdminKubeconfig(cluster.DefaultDataDir); readable(admin) {
			os.Setenv(clientcmd.RecommendedConfigPathEnvVar, admin)
		}
	}
	if err := cmd.NewDefaultKubectlCommand().Execute(); err != nil {
		util.CheckErr(err) // prints and exits as kubectl does
		fmt.Fprintln(os.Stderr, err)
		return exitError
	}
	return 0
}

func readable(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
