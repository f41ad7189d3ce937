// Command upstreamcloud runs upstream's own framework of cloud controller managers,
// k8s.io/cloud-provider/app, over the loopback cloud: tests let it and Kemudi's loops do the same
// things to the same API server, and compare what comes of it. It takes upstream's flags.
//
// Nothing of it is part of Kemudi.
package main
