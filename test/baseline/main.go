package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "baseline:", err)
		os.Exit(1)
	}
}

// run runs one command, named as those of kemudi are.
func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("a command is missing: server, reset or version")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	dir := flags.String("data-dir", "", "directory for everything that is stored")
	port := flags.Int("secure-port", 7443, "port of the API; etcd takes the two after it")
	for _, name := range []string{"run-dir", "pod-logs-dir", "kubeconfig"} {
		flags.String(name, "", "of no effect: there is no node")
	}
	flags.Bool("disable-agent", false, "of no effect: there is no node")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "version":
		fmt.Printf("k8s.io/apiserver %s, %s\n", kubernetesVersion(), runtime.Version())
		return nil
	case "reset":
		if err := os.RemoveAll(*dir); err != nil {
			return fmt.Errorf("remove data: %w", err)
		}
		fmt.Println("nothing is left")
		return nil
	case "server":
		return serve(ctx, *dir, *port)
	}
	return fmt.Errorf("there is no command %q", args[0])
}

// notifyEnv names the file descriptor on which the server says that it is ready.
const notifyEnv = "KEMUDI_NOTIFY_FD"

// notifyReady says so to whom started the server, if it wants to know.
func notifyReady() error {
	v := os.Getenv(notifyEnv)
	if v == "" {
		return nil
	}
	fd, err := strconv.Atoi(v)
	if err != nil {
		return fmt.Errorf("%s=%q is not a file descriptor", notifyEnv, v)
	}
	f := os.NewFile(uintptr(fd), "notify")
	if _, err := fmt.Fprintln(f, `{"name":"ready","ready":true}`); err != nil {
		return fmt.Errorf("report readiness: %w", err)
	}
	return f.Close()
}
