-- Roles of the cluster that deploy/compose.yaml makes.
CREATE ROLE weir_check LOGIN PASSWORD 'check' IN ROLE pg_monitor;
CREATE ROLE replica LOGIN REPLICATION PASSWORD 'replica';
CREATE ROLE app LOGIN PASSWORD 'app';
CREATE DATABASE app OWNER app;
