package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	size := fleet.Size{Servers: 1}
	var start starting
	var ask joining
	c := &cobra.Command{
		Use:   "up [-- server flags [-- agent flags]]",
		Short: "Start a cluster on this machine in the background, or join one",
		Long: `Starts the server in the background, waits until it is ready, writes a
kubeconfig context and prints each step with the time it took. Doing it again is
harmless. Flags after -- are passed to kemudi server.

With --join this machine becomes a node of a cluster that runs elsewhere, by a token that
kemudi token create has made there, or one more of its servers (--join-as server). Later
kemudi up starts what it has become, and flags after -- are those of that.

With --servers and --agents the cluster has further servers and nodes, each with its own
network and data on this machine: what runs there is the same as on machines of their own.
Flags after -- are then those of all servers, but for addresses, names, directories, and
who has processors and memory for itself, which are the first one's alone. Agents have those that they know, but for labels and
taints of nodes; what is for agents alone goes after a second --.

With --ephemeral the cluster's state is in memory, and kemudi down removes all of it.

With --from-etcd it continues another Kubernetes: its store, and with --from-pki its
keys, are copied, and nothing is changed there. What this one does not serve is named, and
left as it is.

With --at-boot systemd starts the server or agent, now and whenever the machine starts, and
again should it crash. Without it, kemudi up brings the cluster back after a reboot.`,
		Example: `  kemudi up
  kemudi up --import web.tar --apply web.yaml
  kemudi up --at-boot
  kemudi up --join 10.0.0.1 --token-file /root/token --at-boot
  kemudi up --servers 3 --agents 2
  kemudi up --agents 2 -- --register-with-taints node-role.kubernetes.io/control-plane:NoSchedule
  kemudi up --agents 2 -- --max-pods 50 -- --node-labels example.com/rack=7
  kemudi up --ephemeral
  kemudi up --from-etcd /var/lib/etcd --from-pki /etc/kubernetes/pki
  kemudi up -- --secure-port 7443`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && c.ArgsLenAtDash() != 0 {
				return errUsage{fmt.Errorf("unexpected argument %q: flags for the server go after --", args[0])}
			}
			return checkSize(size)
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
			role, err := ask.settle(c, &o)
			if err != nil {
				return err
			}
			if role == up.RoleAgent {
				return upAgent(c, o, args)
			}
			flags, err := flagsOfMachines(c, args)
			if err != nil {
				return err
			}
			o.Args, o.Said = flags.first, flags.first
			if err := start.settle(c.Context(), &o); err != nil {
				return err
			}
			if err := addMachines(c.Context(), &o, size, flags); err != nil {
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
	ask.addFlags(c)
	c.Flags().BoolVar(&o.AtBoot, "at-boot", false, "make a service of systemd that starts the server or agent with the machine")
	c.Flags().BoolVar(&start.ephemeral, "ephemeral", start.ephemeral, "keep the cluster's state in memory: kemudi down then ends it for good")
	c.Flags().StringVar(&start.etcd, "from-etcd", start.etcd, "data directory of the etcd of another Kubernetes, or a snapshot of it: take over its store; it stays as it is")
	c.Flags().StringVar(&start.pki, "from-pki", start.pki, "directory of that Kubernetes' keys and certificates, as kubeadm lays it out; default they are made anew")
	c.Flags().IntVar(&size.Servers, "servers", size.Servers, "how many servers the cluster has on this machine; those that there are stay, and those that were removed come back if need be")
	c.Flags().IntVar(&size.Agents, "agents", size.Agents, "how many further nodes the cluster has on this machine; those that there are stay")
	c.Flags().StringArrayVar(&o.Images, "import", nil, "image archive to import; may be repeated")
	c.Flags().StringArrayVar(&o.Manifests, "apply", nil, "manifest to apply and wait for; may be repeated")
	return c
}

// checkSize refuses a size that no cluster has.
func checkSize(size fleet.Size) error {
	switch {
	case size.Servers < 1:
		return errUsage{fmt.Errorf("--servers %d: a cluster has one at least", size.Servers)}
	case size.Agents < 0:
		return errUsage{fmt.Errorf("--agents %d is negative", size.Agents)}
	}
	return nil
}

// starting says what a cluster begins with.
type starting struct {
	ephemeral bool
	etcd, pki string // of another Kubernetes; empty: none
}

// settle has the server told. It refuses to take a cluster that runs for one that is ephemeral,
// and removes the machines of one that has crashed: they are of no cluster any more.
func (s *starting) settle(ctx context.Context, o *up.Options) error {
	for _, p := range []struct {
		flag string
		path *string
	}{{"--from-etcd", &s.etcd}, {"--from-pki", &s.pki}} {
		if *p.path == "" {
			continue
		}
		abs, err := filepath.Abs(*p.path) // the server may be started elsewhere
		if err != nil {
			return fmt.Errorf("find %s: %w", *p.path, err)
		}
		*p.path = abs
		o.Args = append(o.Args, p.flag, abs)
	}
	if s.ephemeral {
		o.Args = append(o.Args, "--ephemeral")
	}
	was := up.Ephemeral(o.DataDir)
	pid, err := up.Running(o.RunDir)
	switch {
	case err != nil:
		return err
	case pid != 0 && s.ephemeral && !was:
		return fmt.Errorf("--ephemeral: the cluster that runs here (process %d) is on the disk: kemudi down stops it, and another one needs directories of its own (--data-dir, --run-dir)", pid)
	case pid != 0 && s.etcd != "" && up.TakenFrom(o.DataDir) != s.etcd:
		return fmt.Errorf("--from-etcd: a server runs here already (process %d): what is taken over needs directories of its own (--data-dir, --run-dir)", pid)
	case pid == 0 && was:
		return removeMachines(ctx, fleet.Fleet{Program: o.Program, DataDir: o.DataDir, RunDir: o.RunDir})
	}
	return nil
}

// removeMachines removes the further machines of a cluster that is gone.
func removeMachines(ctx context.Context, f fleet.Fleet) error {
	if n, err := f.Size(); err != nil || n == (fleet.Size{Servers: 1}) {
		return err
	}
	_, err := f.Remover().Remove(ctx)
	return err
}

// addMachines gives a cluster its further machines on this one: those that it has, and
// more if more are wanted.
func addMachines(ctx context.Context, o *up.Options, wanted fleet.Size, flags machineFlags) error {
	f := fleet.Fleet{Program: o.Program, DataDir: o.DataDir, RunDir: o.RunDir, ServerArgs: flags.servers, AgentArgs: flags.agents}
	have, err := f.Size()
	if err != nil {
		return err
	}
	machines, err := f.States() // those of servers that were removed, too
	if err != nil {
		return err
	}
	want := fleet.Size{Servers: max(have.Servers, wanted.Servers), Agents: max(have.Agents, wanted.Agents)}
	if want == (fleet.Size{Servers: 1}) && len(machines) == 0 {
		return nil
	}
	switch {
	case o.AtBoot:
		return errUsage{errors.New("--at-boot, --servers and --agents: what systemd starts is one node; further machines on this one are for trying a cluster out")}
	case want.Servers > 1 && slices.Contains(o.Args, "--ephemeral"):
		return errUsage{errors.New("--servers and --ephemeral: a store in memory is that of one server")}
	case os.Geteuid() != 0:
		return fmt.Errorf("further machines need root: %w", os.ErrPermission)
	}
	server, err := f.Grow(ctx, want)
	if err != nil {
		return err
	}
	o.Args = append([]string{"--node-ip", server.String()}, o.Args...) // what is said comes later, and holds
	f.Servers = wanted.Servers
	o.Machines = f
	return nil
}

// tips are commands to try after a start, as this person has to type them here:
// by the name that this program was called by, with the directories of this
// cluster, and with a kubectl that there is.
func tips(c *cobra.Command, o up.Options, urls []string) string {
	self, data, dirs := typed(c)
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

// typed is how this person has to type the name of this program, the data directory of this cluster, and all of its directories.
func typed(c *cobra.Command) (self, data, dirs string) {
	for _, name := range []string{"data-dir", "run-dir"} {
		if f := c.Flags().Lookup(name); f.Value.String() != f.DefValue {
			dirs += " --" + name + " " + shellQuoted(f.Value.String())
		}
		if name == "data-dir" {
			data = dirs
		}
	}
	return shellQuoted(os.Args[0]), data, dirs
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
		Short: "Stop the server or agent; containers keep running and its state stays",
		Example: `  kemudi down
  kemudi down && kemudi up   # restart without restarting a container`,
		Long: `Stops the server or agent, and further nodes on this machine. Containers keep running, and
the next kemudi up finds them again; of a cluster that was started with --ephemeral
nothing is left.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			f := fleet.Fleet{Program: program, DataDir: o.DataDir, RunDir: o.RunDir}
			agents, err := f.Down(c.Context())
			if err != nil {
				return err
			}
			for _, name := range agents {
				fmt.Println("stopped", name)
			}
			role, err := up.RoleOf(o.DataDir)
			if err != nil {
				return err
			}
			role = cmp.Or(role, up.RoleServer)
			ephemeral := up.Ephemeral(o.DataDir)
			if ephemeral {
				if err := removeMachines(c.Context(), f); err != nil {
					return err
				}
			}
			stopped, err := up.Down(c.Context(), o.DataDir, o.RunDir)
			switch {
			case err != nil:
				return err
			case !stopped:
				fmt.Println("no " + role + " is running")
			case up.Ephemeral(o.DataDir):
				return errors.New("the server did not stop in time and was killed; the cluster was in memory: what is left of it is removed by the next kemudi up, or by kemudi reset")
			case ephemeral:
				fmt.Println("stopped the server; the cluster was in memory, and is gone with all that ran in it")
			default:
				fmt.Println("stopped the " + role + "; containers keep running (kemudi reset removes everything)")
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
		Long: `Shows the server of this machine, or its agent and the servers that the agent knows,
further machines of a cluster on this one, nodes and pods. On an agent's machine the
node is its own, and the pods are those that run there.`,
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
	log := ""
	if s.Log != "" {
		log = ", log " + s.Log
	}
	switch {
	case !s.Running && s.Role == up.RoleAgent:
		fmt.Println("the agent of this machine does not run; start it with: kemudi up")
		return
	case !s.Running && !slices.ContainsFunc(s.Machines, func(m fleet.State) bool { return m.Process != 0 }):
		fmt.Println("no server is running; start one with: kemudi up")
		return
	case !s.Running:
		fmt.Println("server   does not run (kemudi up starts it)")
	case s.Role == up.RoleAgent:
		fmt.Printf("agent    process %d%s\n", s.Process, log)
	default:
		fmt.Printf("server   process %d, %s%s\n", s.Process, s.Version, log)
	}
	for _, server := range s.Servers {
		is := "ready"
		if !server.Ready {
			is = server.Problem
		}
		fmt.Printf("server   %s: %s\n", server.URL, is)
	}
	if s.Ephemeral {
		fmt.Println("state    in memory: gone when the server stops (kemudi down)")
	}
	for _, m := range s.Machines {
		switch {
		case m.Process != 0:
			fmt.Printf("machine  %s: process %d, log %s\n", m.Name, m.Process, m.Log)
		case m.Removed:
			fmt.Printf("machine  %s: removed from the servers (kemudi up --servers has it join again)\n", m.Name)
		default:
			fmt.Printf("machine  %s: does not run (kemudi up starts it)\n", m.Name)
		}
	}
	if !s.Running {
		return
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
