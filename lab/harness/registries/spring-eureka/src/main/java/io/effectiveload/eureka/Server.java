package io.effectiveload.eureka;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.cloud.netflix.eureka.server.EnableEurekaServer;
import org.springframework.context.annotation.Bean;
import org.springframework.core.env.Environment;
import org.springframework.security.config.Customizer;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.web.SecurityFilterChain;

/** A Eureka server; asks for a password where spring.security.user.name is set. */
@SpringBootApplication
@EnableEurekaServer
public class Server {
    public static void main(String[] arguments) {
        SpringApplication.run(Server.class, arguments);
    }

    @Bean
    SecurityFilterChain guard(HttpSecurity http, Environment settings) throws Exception {
        boolean guarded = settings.containsProperty("spring.security.user.name");
        return http
            .csrf(csrf -> csrf.disable())
            .httpBasic(Customizer.withDefaults())
            .authorizeHttpRequests(all -> {
                if (guarded) {
                    all.anyRequest().authenticated();
                } else {
                    all.anyRequest().permitAll();
                }
            })
            .build();
    }
}
