// Package features knows the names of upstream's feature gates, because people say them and dashboards
// ask for them. Nothing here is turned on or off by one: what there is is on.
package features
