package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kemudi/kemudi/internal/cluster"
	"github.com/kemudi/kemudi/internal/fleet"
	"github.com/kemudi/kemudi/internal/up"
)

// addDirs adds the flags that say which cluster on this machine is meant.
func addDirs(c *cobra.Command, o *up.Options) {
	o.DataDir, o.RunDir = cluster.DefaultDataDir, cluster.DefaultRunDir
	c.Flags().Var((*dirFlag)(&o.DataDir), "data-dir", "directory of the cluster's state")
	c.Flags().Var((*dirFlag)(&o.RunDir), "run-dir", "directory of sockets and process IDs")
}

// dirFlag is the absolute path of a directory, however it is given: the server
// and what a reset looks for do not depend on a working directory.
type dirFlag string

func (d *dirFlag) Type() string   { return "string" }
func (d *dirFlag) String() string { return string(*d) }

func (d *dirFlag) Set(s string) error {
	path, err := filepath.Abs(s)
	*d = dirFlag(path)
	return err
}

// outputFlag is how a command prints its answer.
type outputFlag string

func (o *outputFlag) Type() string   { return "format" }
func (o *outputFlag) String() string { return string(*o) }

func (o *outputFlag) Set(s string) error {
	if s != "" && s != "json" {
		return fmt.Errorf("%q is neither json nor empty", s)
	}
	*o = outputFlag(s)
	return nil
}

func addOutput(c *cobra.Command, o *outputFlag) {
	c.Flags().VarP(o, "output", "o", "json, or empty for people")
	if err := c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json"}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is there: see above
	}
}

func addKubeconfig(c *cobra.Command, o *up.Options) {
	c.Flags().StringVar(&o.Kubeconfig, "kubeconfig", up.DefaultKubeconfig(), "file to keep the context \"kemudi\" in; empty: none")
}

func newUp() *cobra.Command {
	o := up.Options{Out: os.Stdout}
	agents := 0
	c := &cobra.Command{
		Use:   "up [-- server flags]",
		Short: "Start a cluster on this machine in the background",
		Long: `Starts the server in the background, waits until it is ready, writes a
kubeconfig context and prints each step with the time it took. Doing it again is
harmless. Flags after -- are passed to kemudi server.

With --agents the cluster has further nodes, each with its own network and data on this
machine: what runs there is the same as on machines of their own.

With --at-boot systemd starts the server, now and whenever the machine starts, and
again should it crash. Without it, kemudi up brings the cluster back after a reboot.`,
		Example: `  kemudi up
  kemudi up --import web.tar --apply web.yaml
  kemudi up --at-boot
  kemudi up --agents 2
  kemudi up -- --secure-port 7443`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && c.ArgsLenAtDash() != 0 {
				return errUsage{fmt.Errorf("unexpected argument %q: flags for the server go after --", args[0])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if file, err := c.Flags().GetString(configFlag); err == nil && file != "" {
				if file, err = filepath.Abs(file); err != nil {
					return fmt.Errorf("find configuration: %w", err)
				}
				args = append([]string{"--" + configFlag, file}, args...)
			}
			var err error
			if o.Program, err = os.Executable(); err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			o.ServerArgs = args
			if err := addAgents(c.Context(), &o, agents); err != nil {
				return err
			}
			urls, err := up.Up(c.Context(), o)
			if err != nil {
				return err
			}
			fmt.Fprint(o.Out, tips(c, o, urls))
			return nil
		},
	}
	addDirs(c, &o)
	addKubeconfig(c, &o)
	c.Flags().BoolVar(&o.AtBoot, "at-boot", false, "make a service of systemd that starts the server with the machine")
	c.Flags().IntVar(&agents, "agents", agents, "how many further nodes the cluster has on this machine; those that there are stay")
	c.Flags().StringArrayVar(&o.Images, "import", nil, "image archive to import; may be repeated")
	c.Flags().StringArrayVar(&o.Manifests, "apply", nil, "manifest to apply and wait for; may be repeated")
	return c
}

// addAgents gives a cluster its further nodes on this machine: those that it has, and
// more if more are wanted.
func addAgents(ctx context.Context, o *up.Options, wanted int) error {
	f := fleet.Fleet{Program: o.Program, DataDir: o.DataDir, RunDir: o.RunDir}
	have, err := f.Size()
	if err != nil || have == 0 && wanted <= 0 {
		return err
	}
	if o.AtBoot {
		return errUsage{errors.New("--at-boot and --agents: what systemd starts is one node; further ones on this machine are for trying a cluster out")}
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("further nodes need root: %w", os.ErrPermission)
	}
	server, err := f.Grow(ctx, max(have, wanted))
	if err != nil {
		return err
	}
	o.ServerArgs = append([]string{"--node-ip", server.String()}, o.ServerArgs...) // what is said comes later, and holds
	o.Machines = f
	return nil
}

// tips are commands to try after a start, as this person has to type them here:
// by the name that this program was called by, with the directories of this
// cluster, and with a kubectl that there is.
func tips(c *cobra.Command, o up.Options, urls []string) string {
	self := shellQuoted(os.Args[0])
	dirs, data := "", ""
	for _, name := range []string{"data-dir", "run-dir"} {
		if f := c.Flags().Lookup(name); f.Value.String() != f.DefValue {
			dirs += " --" + name + " " + shellQuoted(f.Value.String())
		}
		if name == "data-dir" {
			data = dirs
		}
	}
	kubectl := self + " kubectl"
	if _, err := exec.LookPath("kubectl"); err == nil {
		kubectl = "kubectl"
	}
	switch o.Kubeconfig {
	case up.DefaultKubeconfig(): // read without being named
	case "":
		kubectl += " --kubeconfig " + shellQuoted(up.AdminKubeconfig(o.DataDir))
	default:
		kubectl += " --kubeconfig " + shellQuoted(o.Kubeconfig)
	}
	lines := []string{"Try next:", kubectl + " get pods -A", kubectl + " get nodes -o wide"}
	for _, url := range urls {
		lines = append(lines, "curl "+url)
	}
	lines = append(lines, self+" status"+dirs, self+" down"+dirs, self+" token create"+data+"   # lets another machine join, and says what to type there")
	return "\n" + strings.Join(lines, "\n  ") + "\n"
}

// shellQuoted is a word as a shell reads it back.
func shellQuoted(word string) string {
	const plain = "/.-_:=@%+0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func newDown() *cobra.Command {
	var o up.Options
	c := &cobra.Command{
		Use:   "down",
		Short: "Stop the server; containers keep running and its state stays",
		Example: `  kemudi down
  kemudi down && kemudi up   # restart without restarting a container`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			agents, err := fleet.Fleet{DataDir: o.DataDir, RunDir: o.RunDir}.Down(c.Context())
			if err != nil {
				return err
			}
			for _, name := range agents {
				fmt.Println("stopped", name)
			}
			stopped, err := up.Down(c.Context(), o.RunDir)
			if err != nil {
				return err
			}
			if stopped {
				fmt.Println("stopped the server; containers keep running (kemudi reset removes everything)")
			} else {
				fmt.Println("no server is running")
			}
			return nil
		},
	}
	addDirs(c, &o)
	return c
}

func newStatus() *cobra.Command {
	var o up.Options
	var output outputFlag
	c := &cobra.Command{
		Use:   "status",
		Short: "Show how the cluster on this machine is (exit code 3: not ready)",
		Example: `  kemudi status
  kemudi status -o json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s := status{}
			var err error
			if s.State, err = up.Status(c.Context(), o); err != nil {
				return err
			}
			if s.Machines, err = (fleet.Fleet{DataDir: o.DataDir, RunDir: o.RunDir}).States(); err != nil {
				return err
			}
			if output == "json" {
				err = printJSON(s)
			} else {
				printStatus(s)
			}
			if err != nil {
				return err
			}
			if !s.Ready {
				return errNo
			}
			return nil
		},
	}
	addDirs(c, &o)
	addOutput(c, &output)
	return c
}

// status is how the cluster on this machine is.
type status struct {
	up.State
	Machines []fleet.State `json:"machines,omitempty"` // further ones
}

func printStatus(s status) {
	if !s.Running {
		fmt.Println("no server is running; start one with: kemudi up")
		return
	}
	fmt.Printf("server   process %d, %s\n", s.Process, s.Version)
	for _, m := range s.Machines {
		if m.Process != 0 {
			fmt.Printf("machine  %s: process %d, log %s\n", m.Name, m.Process, m.Log)
		} else {
			fmt.Printf("machine  %s: does not run (kemudi up starts it)\n", m.Name)
		}
	}
	for _, n := range s.Nodes {
		ready := "not ready"
		if n.Ready {
			ready = "ready"
		}
		fmt.Printf("node     %s: %s\n", n.Name, ready)
	}
	fmt.Printf("pods     %d\n", s.Pods)
	if s.Problem != "" {
		fmt.Println("problem ", s.Problem)
	}
}

func printJSON(v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	fmt.Println(string(data))
	return nil
}

func newReset() *cobra.Command {
	o := up.Options{Out: os.Stdout}
	c := &cobra.Command{
		Use:   "reset",
		Short: "Remove every trace of the cluster from this machine",
		Long: `Stops the server and removes containers, mounts, network namespaces, links,
routes, the nft tables, cgroups and files. It prints what it removes and verifies
that nothing is left. The cluster's data is gone afterwards.`,
		Example: "  kemudi reset",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			data, err := up.RealDir(o.DataDir)
			if err != nil {
				return fmt.Errorf("find data directory: %w", err)
			}
			run, err := up.RealDir(o.RunDir)
			if err != nil {
				return fmt.Errorf("find run directory: %w", err)
			}
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			machines := fleet.Fleet{Program: program, DataDir: data, RunDir: run}
			return up.Reset(c.Context(), o, append([]up.Remover{machines.Remover()}, cluster.Removers(data, run)...))
		},
	}
	addDirs(c, &o)
	addKubeconfig(c, &o)
	return c
}
