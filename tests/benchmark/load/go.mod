module rocketmq-gantry/benchmark/load

go 1.26
