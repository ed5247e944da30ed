// Package forecastcontroller says beside a running Machine Config Operator (MCO) what MCO is about to do to nodes, and
// why each node waits. It writes nothing of MCO's but entries of its own in spec.nodeDisruptionPolicy.
//
//	MCO's objects, nodes -> forecast.OfPool -> ConfigMap dayone-pool-POOL, event, metrics
//	annotated MachineConfigs -> entries -> MachineConfiguration cluster, ConfigMap dayone-policies
package forecastcontroller
