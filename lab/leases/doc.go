// Package leases is the laboratory's scenarios of leases and stores, and an etcd to develop with.
package leases
