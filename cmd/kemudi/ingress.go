package main

import (
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/cluster"
	"github.com/kemudi/kemudi/internal/up"
)

func newIngress() *cobra.Command {
	c := group(&cobra.Command{
		Use:     "ingress",
		Short:   "Say what of the Ingresses of a cluster is obeyed",
		Example: "  kemudi ingress report",
	})
	c.AddCommand(newIngressReport())
	return c
}

func newIngressReport() *cobra.Command {
	var from string
	var output outputFlag
	c := &cobra.Command{
		Use:   "report",
		Short: "Name what of each Ingress is not obeyed",
		Long: `Reads the Ingresses of a cluster, whoever obeys them there, and names for each the
annotations, backends, paths and Secrets that would not be obeyed by the Ingresses of Kemudi: before
a cluster moves from ingress-nginx, and after. Nothing is changed. Of a file without Services or
Secrets, or by somebody who may not read Secrets, what Ingresses say of those is not looked at.`,
		Example: `  kemudi ingress report
  kemudi ingress report --from ~/.kube/old-cluster
  kubectl get ingress,ingressclass,service -A -o yaml > all.yaml; kemudi ingress report --from all.yaml -o json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if from == "" {
				from = usualKubeconfig()
			}
			list, err := cluster.IngressReport(c.Context(), from)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(list)
			}
			w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "INGRESS\tCLASS\tOBEYED HERE\tNOT OBEYED")
			for _, f := range list {
				class, obeyed, problems := f.Class, "no", f.Problems
				if class == "" {
					class = "<none>"
				}
				if f.Obeyed {
					obeyed = "yes"
				}
				if len(problems) == 0 {
					problems = []string{"-"}
				}
				for n, p := range problems {
					if n == 0 {
						fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", f.Ingress, class, obeyed, p)
					} else {
						fmt.Fprintf(w, "\t\t\t%s\n", p)
					}
				}
			}
			return w.Flush()
		},
	}
	c.Flags().StringVar(&from, "from", "", "kubeconfig of the cluster, a file as kubectl get -o yaml prints it, or a snapshot of its etcd; default the kubeconfig that kubectl would use")
	addOutput(c, &output)
	return c
}

// usualKubeconfig is the file by which kubectl would find a cluster here.
func usualKubeconfig() string {
	for _, file := range clientcmd.NewDefaultClientConfigLoadingRules().GetLoadingPrecedence() {
		if readable(file) {
			return file
		}
	}
	return up.AdminKubeconfig(dataDir())
}
