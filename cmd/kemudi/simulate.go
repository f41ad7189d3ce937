package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kemudi/kemudi/internal/cluster"
	"github.com/kemudi/kemudi/internal/obs"
)

func newSimulate() *cobra.Command {
	s := cluster.DefaultSimulation()
	var logs obs.LogOptions
	run := func(c *cobra.Command, _ []string) error {
		log, err := obs.NewLogger(os.Stderr, logs)
		if err != nil {
			return errUsage{err}
		}
		obs.CaptureKlog(log)
		o := cluster.Defaults()
		o.Logger, o.Step = log, func(name string, ready bool) {
			log.Info("started", "step", name)
			if ready {
				log.Info("the simulation runs", "kubeconfig", cluster.SimulationKubeconfig(s))
			}
		}
		return cluster.Simulate(c.Context(), o, s)
	}
	c := group(&cobra.Command{
		Use:   "simulate",
		Short: "Run a control plane with simulated nodes, or ask what would become of a cluster",
		Long: `Runs a control plane in the foreground, with a data directory of its own, without root,
and with nodes that live in the API alone: all alike (--nodes), or in pools (--profile), which
grow by pods that fit nowhere and shrink when nodes have nothing to do:

  pools:
  - name: small
    count: 10             # at first; there are min to max
    max: 100
    cpu: "8"
    memory: 32Gi
    labels: {zone: a}
    provisionAfter: 1m    # how long a node takes to come
    idleAfter: 10m        # how long one without pods stays
  - name: gpu
    count: 2
    devices: {example.com/gpu: "4"}     # extended resources
    drivers:                            # of devices that claims are given
    - {name: gpu.example.com, count: 4, attributes: {model: {string: a100}}, capacity: {memory: {value: 40Gi}}}
    taints: [{key: gpu, effect: NoSchedule}]
    startAfter: 20s       # how long a pod takes to run
    failing: 0.01         # the share of pods that fail

API server, scheduler and controllers are the real ones.`,
		Example: `  kemudi simulate --nodes 5000
  kemudi simulate --profile pools.yaml
  kemudi simulate --from ~/.kube/config --data-dir /tmp/copy   # the nodes and pods of a cluster
  kubectl --kubeconfig ~/.kemudi/simulation/admin.kubeconfig get nodes
  kemudi simulate fit -f pod.yaml
  kemudi simulate drain node-7`,
	})
	c.RunE = run
	logs.AddFlags(c.Flags())
	f := c.Flags()
	f.Var((*dirFlag)(&s.DataDir), "data-dir", "directory of the simulation's state; default .kemudi/simulation in the home")
	f.Var((*dirFlag)(&s.RunDir), "run-dir", "directory of its process ID, at most 40 characters; default one of the user's among temporary files")
	f.Uint16Var(&s.SecurePort, "secure-port", s.SecurePort, "port of this machine to serve the API on")
	f.IntVar(&s.Nodes, "nodes", s.Nodes, "how many nodes, of 4 processors and 16 GiB each, if there are no pools")
	f.StringVar(&s.Profile, "profile", "", "file of pools of nodes")
	f.StringVar(&s.From, "from", "", "kubeconfig of a cluster, a file as kubectl get nodes,pods -A -o yaml prints it, or a snapshot of an etcd, to begin with its nodes and pods")
	c.AddCommand(newFit(), newDrain())
	return c
}

// addFrom adds the flag that says which cluster is asked about.
func addFrom(c *cobra.Command, from *string) {
	c.Flags().StringVar(from, "from", "",
		"kubeconfig of the cluster, a file as kubectl get nodes,pods -A -o yaml prints it, or a snapshot of its etcd; default the simulation that runs here")
}

func newFit() *cobra.Command {
	var from, file string
	var output outputFlag
	most := 10000
	c := &cobra.Command{
		Use:   "fit -f FILE",
		Short: "Say how many more of a pod fit into a cluster, and what stops the next",
		Long: `Has the scheduler place copies of a pod in a copy of the cluster until one fits
nowhere. The cluster itself is not touched; pods that are there stay where they are.`,
		Example: "  kemudi simulate fit -f pod.yaml\n  kemudi simulate fit -f deployment.yaml --from ~/.kube/config -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return errUsage{errors.New("want a file with a pod: -f FILE")}
			}
			fit, err := cluster.Fit(c.Context(), from, file, most)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(fit)
			}
			w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
			for _, node := range slices.Sorted(maps.Keys(fit.Nodes)) {
				fmt.Fprintf(w, "%s\t%d\n", node, fit.Nodes[node])
			}
			fmt.Fprintf(w, "all\t%d\n", fit.Pods)
			if err := w.Flush(); err != nil {
				return err
			}
			if fit.Next != "" {
				fmt.Println("the next:", fit.Next)
			}
			return nil
		},
	}
	c.Flags().StringVarP(&file, "filename", "f", "", "file with a pod, or with something that has a template of one")
	c.Flags().IntVar(&most, "most", most, "how many are tried at the most")
	addFrom(c, &from)
	addOutput(c, &output)
	return c
}

func newDrain() *cobra.Command {
	var from string
	var output outputFlag
	wait := 10 * time.Second
	c := &cobra.Command{
		Use:   "drain NODE",
		Short: "Say what happens when a node is drained",
		Long: `Drains the node in a copy of the cluster, in which new pods are ready at once, and says
which pods go, which may not, and where those that are made instead get to.`,
		Example: "  kemudi simulate drain node-7\n  kemudi simulate drain worker-1 --from ~/.kube/config -o json",
		Args:    oneArg,
		RunE: func(c *cobra.Command, args []string) error {
			d, err := cluster.DrainOf(c.Context(), from, args[0], wait)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(d)
			}
			w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
			for _, pod := range d.Evicted {
				fmt.Fprintf(w, "evicted\t%s\n", pod)
			}
			for _, pod := range d.Lost {
				fmt.Fprintf(w, "lost\t%s\tnothing makes it again\n", pod)
			}
			for _, pod := range d.Stays {
				fmt.Fprintf(w, "stays\t%s\n", pod)
			}
			for _, r := range d.Blocked {
				fmt.Fprintf(w, "blocked\t%s\t%s\n", r.Pod, r.Why)
			}
			for _, p := range d.Placed {
				fmt.Fprintf(w, "placed\t%s\t%s\n", p.Pod, p.Node)
			}
			for _, r := range d.Waiting {
				fmt.Fprintf(w, "waiting\t%s\t%s\n", r.Pod, r.Why)
			}
			for _, r := range d.Refused {
				fmt.Fprintf(w, "refused\t%s\t%s\n", r.Pod, r.Why)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			if len(d.Evicted)+len(d.Lost)+len(d.Stays)+len(d.Blocked) == 0 {
				fmt.Println("no pods run there")
			}
			if len(d.Blocked)+len(d.Waiting)+len(d.Refused) > 0 {
				return errNo
			}
			return nil
		},
	}
	c.Flags().DurationVar(&wait, "wait", wait, "how long a pod that may not be evicted is asked about again")
	addFrom(c, &from)
	addOutput(c, &output)
	return c
}
