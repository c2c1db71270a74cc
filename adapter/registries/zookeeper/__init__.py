"""ZooKeeper: instances as nodes, in the layouts of Dubbo, Curator and Spring Cloud."""
