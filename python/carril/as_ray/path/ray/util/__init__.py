"""`ray.util`: the address of this machine; the rest says that it is not there yet."""

from carril.as_ray import missing as _missing


def get_node_ip_address() -> str:
    """The address of this process's node, as the head knows it; on one machine that is loopback."""
    import carril

    return str(carril.nodes()[0]["NodeManagerAddress"]) if carril.is_initialized() else "127.0.0.1"


__getattr__ = _missing.attributes(
    "ray.util",
    (
        "ActorPool",
        "accelerators",
        "as_completed",
        "collective",
        "connect",
        "deregister_serializer",
        "disconnect",
        "get_current_placement_group",
        "get_node_instance_id",
        "get_placement_group",
        "inspect_serializability",
        "iter",
        "list_named_actors",
        "log_once",
        "map_unordered",
        "metrics",
        "multiprocessing",
        "pdb",
        "placement_group",
        "placement_group_table",
        "queue",
        "register_serializer",
        "remove_placement_group",
        "scheduling_strategies",
        "spark",
        "state",
    ),
)

__all__ = ["get_node_ip_address"]
