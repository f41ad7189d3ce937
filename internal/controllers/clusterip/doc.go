// Package clusterip holds the addresses of Services against the IPAddresses by which they are
// taken. The API server writes both in one transaction: what is wrong here was done by somebody
// else, who has deleted an IPAddress or written to the store. What can be mended is; of the rest,
// and of what was mended, events tell.
//
// Ranges are the affair of package servicecidr.
package clusterip
