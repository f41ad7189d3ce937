// Package cloud is for those who sell a cloud: with it a program runs Kemudi's loops over the
// vendor's implementation of k8s.io/cloud-provider's interface, with upstream's flags:
//
//	func main() {
//		cloudprovider.RegisterCloudProvider("acme", func(config io.Reader) (cloudprovider.Interface, error) { ... })
//		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
//		defer stop()
//		if err := cloud.Run(ctx, "acme", os.Args[1:]); err != nil {
//			...
//		}
//	}
//
// The cluster's servers are told --cloud-provider=external. Nothing of a vendor's is ever part of Kemudi.
package cloud
