/** A row with an AVRO or JSON schema. Its class has no package, so that the name of its schema is `Order`. */
public class Order {
    public Long id;
    public String name;
    public Double price;
}
