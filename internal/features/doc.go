// Package features knows the names of upstream's feature gates, because people say them and dashboards
// ask for them. What there is is on, whatever gates say, but for the few features that cost something where nobody wants them
// ([Gates.On]).
package features
