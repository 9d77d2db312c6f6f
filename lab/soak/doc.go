// Command soak measures holdfast on a real etcd, which it starts by itself on
// this machine, and holds the figures to their bounds:
//
//			go run -C lab . run handovers [-n 50] [-rate 10000] [-nodes 3] [-buffer 10000]
//			go run -C lab . run kills     [-n 20] [-ttl 2s] [-nodes 3]
//			go run -C lab . run many      [-n 5000] [-ttl 10s] [-nodes 3]
//			go run -C lab . run rolling    [-n 1] [-nodes 4] [-shards 256] [-rate 5000]
//			go run -C lab . run shardkills [-n 10] [-ttl 2s] [-nodes 4] [-shards 256] [-rate 2000]
//			go run -C lab . run shards     [-n 10000] [-ttl 5s] [-nodes 4]
//			go run -C lab . run load       [-for 30m] [-rate 800] [-seed N]
//			go run -C lab . run reshard    [-entities 400] [-nodes 3] [-ttl 2s] [-changes 8,32,16,2]
//			go run -C lab . run congestion    [-for 55s] [-seed N] [-part 0]
//			go run -C lab . run backlog       [-n 300000] [-sizes 10000,1000000] [-what both] [-quick]
//			go run -C lab . run slowlink      [-entities 10000] [-for 30s] [-only narrow] [-seed N]
//			go run -C lab . run singletonload [-for 10m] [-busy 30s] [-rate 5000]
//			go run -C lab . run restore       [-nodes 3] [-n 20] [-ttl 4s]
//
//		  - handovers: a singleton goes round nodes in processes of their own, which
//		    all send to it. What was lost, doubled or reordered, and how long nothing
//		    was handled.
//		  - kills: the process that hosts the singleton is killed (kill -9) and
//		    replaced, again and again, while all nodes ask it.
//		  - many: thousands of singletons on a few nodes, idle; then one node dies.
//		  - rolling: all nodes that host shards are restarted, one after the other, under
//		    a load of asks. Which were not answered, doubled or reordered, and how long
//		    answers took meanwhile.
//		  - shardkills: a process that hosts shards is killed (kill -9) and replaced, again
//		    and again. How long until all shards answer all nodes, and whether one ever
//		    was in two places.
//		  - shards: very many shards on a few nodes: the first assignment, what they cost
//		    while idle, the loss of the node that coordinates, its planned leave, a join.
//		  - load: for long, entities are asked, stopped for idleness and for room, and
//		    started again, while shards and singletons move. What was lost, doubled or
//		    reordered, and whether goroutines, heap, open files or sessions grow.
//	  - reshard: the number of shards is changed while no node runs the type, several
//	    times, and whoever moves what is remembered is killed (kill -9) in the middle.
//	    Whether every remembered entity runs again, once, in its shard.
//	  - congestion: shards move under a load of messages while every link gets slow, and
//	    once while the link from the old host to the new one is stalled. How many bytes go
//	    over the links for each message, and how soon after healing asks are answered as
//	    before. Which messages were lost without being counted, or doubled.
//	  - backlog: very many messages wait in one mailbox when its node is stopped, planned.
//	    How long until the last is handled at the other node, and how that grows.
//	  - slowlink: entities with state move over links that carry less than what is sent.
//	    Whether what was handled and what the product counts as given up make up what was
//	    sent, and whether every state that did not arrive was told of.
//	  - singletonload: a singleton under a high load moves every 2 s, for a while on a
//	    machine that is busy with something else. What was lost or doubled, and the heap.
//	  - restore: etcd's data is lost, put back to an older copy, and put back with its
//	    revision beyond all that was, under nodes with singletons. Whether Health says so,
//	    how long names are dark after the operator's decision, and whether tokens go back.
//
// Between the nodes of congestion, backlog, slowlink and singletonload stand proxies of
// package test/cluster, and the judges are its own.
//
// What the nodes of handovers and all below it saw they note in files, by the machine's one
// clock: what passed a gate, and what was handled. So it is judged from outside
// when it is over, and what a process noted before kill -9 counts as well.
//
// Each prints the machine, its figures and its bounds, and exits 1 if a bound is
// broken, 2 if it could not measure. It needs Linux; etcd is built on first use
// (package etcdtest).
package soak
