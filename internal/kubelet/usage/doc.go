// Package usage puts what containers and the machine use into the forms that others
// read: the summary, and the metrics that the metrics server asks for. Who measures
// it is the business of others.
package usage
