// Package store remembers the Kubernetes objects that the agent serves, in a
// bbolt file, so that an agent that starts without a network still knows them.
//
// The loop asks it for a Service and its EndpointSlices; no object is kept in memory but those
// that wait to be written. A change is visible to reads at once and is
// written some time later, together with others (see Options.CommitInterval),
// by a goroutine of the store's own: neither Apply nor a read ever waits for the disk's
// fsync.
//
// A Store always works. Whatever is wrong with the file is said once, with cause and remedy, and
// the store goes on in memory and tries the file again from time to time.
//
// # Layout of the file, schema version 1
//
// Keys are text. A value is the CRC-32C of bucket, key and payload (4 bytes, little
// endian) and then the payload.
//
//	objects   <namespace>/<service>/                   the Service
//	          <namespace>/<service>/<endpointslice>    its EndpointSlices
//	owners    <namespace>/<endpointslice>              name of the Service that the slice is filed under
//	cluster   <kind>/<name>                            ServiceCIDRs and the own Node
//	meta      identity/<fact>                          what the records belong to
//	          in-step/<kind>                           time (RFC 3339) and resourceVersion
//	          schema, digest                           without CRC: version in decimal; count and sum of all CRCs
//
// Objects are the protobuf messages of k8s.io/api, trimmed and without resourceVersion and
// managedFields; there is no k8s envelope ("k8s\0" and type), since the key tells the
// kind. A Service and its slices are neighbours, so that one scan of a prefix, which
// is mostly one page, reads them together.
//
// bbolt has no checksums of its own but for its two meta pages. The CRCs find
// records that the medium changed, and the digest finds pages that never reached it.
package store
